"""``run_batch.py score`` with the real bert-score, torch and transformers, and a tiny roberta."""

import json
import os
import random
import subprocess

import pyarrow.parquet as pq
import pytest

from harness.dataset import tokenizer
from tests.engines import score_environment
from tests.harness.batch.stand_ins import TEXT, make_wordnet
from tests.runs import ROOT

pytestmark = pytest.mark.engine

# As scripts that use bert-score directly: the model is made at argv's path, texts and scores are JSON.
DIRECTLY = """
import json, pathlib, sys
from bert_score import BERTScorer
from tests.harness.batch.stand_ins import make_roberta
make_roberta(pathlib.Path(sys.argv[1]))
hypotheses, references = json.load(sys.stdin)
scorer = BERTScorer(lang="en", model_type=sys.argv[1], num_layers=24, device="cpu")
found = []
for start in range(0, len(hypotheses), 128):
    part = slice(start, start + 128)
    found += scorer.score(hypotheses[part], references[part], batch_size=64)[2].tolist()
json.dump(found, sys.stdout)
"""


def python(*words, **given):
    """One thread of torch: on a busy machine several use more CPU, waiting for each other."""
    command, env = [score_environment.interpreter(), *map(str, words)], os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT, env=env, **given)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_bertscore_is_bert_scores(sglang_installed, tmp_path):
    model = tmp_path / "roberta"
    chance, words = random.Random(18), [*TEXT.split(), "naïve", "漢字", "\n"]
    texts = [" ".join(chance.choices(words, k=chance.randrange(40))) for _ in range(2 * 130)]
    ours, theirs = ["", "x", "", *texts[:130]], ["", "", "y", *texts[130:]]
    theirs[10] = "the car " * 600  # beyond the model's 512 tokens
    for name, lines in (("ours", ours), ("theirs", theirs)):
        rows = (" ".join(map(str, tokenizer.encode(text))) for text in lines)
        (tmp_path / name).write_text("\n".join(rows) + "\n")
    wordnet = make_wordnet(tmp_path / "wordnet")
    files = ("-s", tmp_path / "ours", "-r", tmp_path / "theirs", "-o", tmp_path / "scores.parquet")
    where = ("--wordnet", wordnet, "--bert-model", model, "--device", "cpu", "--jobs", 1)
    expected = json.loads(python("-c", DIRECTLY, model, input=json.dumps([ours, theirs])))
    stdout = python("run_batch.py", "score", *files, *where)
    table = pq.read_table(tmp_path / "scores.parquet").to_pydict()
    assert table["bertscore_f1"] == pytest.approx(expected, abs=1e-6)
    assert table["bertscore_f1"][:3] == [0, 0, 0]
    items, meteor, f1 = stdout.splitlines()[:3]
    assert items == "items\t133"
    assert meteor.startswith("meteor\t0.")
    assert f1 == f"bertscore_f1\t{round(sum(expected) / 133, 6)}"
