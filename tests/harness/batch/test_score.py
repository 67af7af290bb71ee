"""METEOR and BERTScore of answers: nltk's and bert-score's own values, and what is said beside them."""

import gc
import os
import random
import signal
import subprocess
import sys
import zipfile
from multiprocessing.synchronize import SemLock

import pyarrow.parquet as pq
import pytest

import run_batch as program
from harness.batch import meteor
from harness.batch.meteor import meteor_scores
from harness.dataset import tokenizer
from harness.errors import RunError
from tests.harness.batch.stand_ins import TEXT, make_bert_score, make_wordnet, write_ids
from tests.runs import ROOT, main_here


@pytest.fixture(scope="module")
def wordnet(tmp_path_factory):
    return make_wordnet(tmp_path_factory.mktemp("nltk_data") / "corpora/wordnet")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Four answers and their references below the working folder, as ``-m 20b`` finds them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MODELS_ROOT", raising=False)
    monkeypatch.setattr("nltk.data.path", [])
    ours = ["the quick dog", "the dogs run on", "a\nhouse", "", ""]
    theirs = ["the fast hound", "a dog runs", "a home", "a tree", ""]
    name = "output_20b_token_ids.txt"
    write_ids(tmp_path / "submission" / name, ours)
    write_ids(tmp_path / "references" / name, theirs)
    return ours, theirs


@pytest.fixture
def put_bert_score(tmp_path, monkeypatch):
    """A function that puts a stand-in for the package where it is found, until the test ends."""
    yield lambda version="4.57.6": monkeypatch.syspath_prepend(
        str(make_bert_score(tmp_path / "site", version))
    )
    for name in [name for name in sys.modules if name.partition(".")[0] in ("bert_score", "transformers")]:
        del sys.modules[name]


def score(capfd, *words):
    code, stdout, stderr = main_here(capfd, program.main, ["score", *map(str, words)])
    assert len(stderr.splitlines()) == (code == 2), stderr
    return code, stdout or stderr


def random_pairs(count):
    """Sentences of words that are equal, of one stem, synonyms, or unrelated."""
    chance, words = random.Random(18), TEXT.split()

    def sentence():
        return " ".join(chance.choices(words, k=chance.randrange(25)))

    return [(sentence(), sentence()) for _ in range(count)]


def nltks(pairs, wordnet, monkeypatch):
    """As the scripts call it: with the WordNet that nltk itself finds."""
    import nltk
    from nltk.corpus import LazyCorpusLoader, WordNetCorpusReader
    from nltk.translate.meteor_score import meteor_score

    (wordnet / "index.sense").touch()
    monkeypatch.setattr(nltk.data, "path", [str(wordnet.parents[1])])
    theirs = LazyCorpusLoader("wordnet", WordNetCorpusReader, None)
    return [meteor_score([b.split()], a.split(), wordnet=theirs) for a, b in pairs]


@pytest.mark.filterwarnings("ignore:The multilingual functions")
def test_meteor_is_nltks(wordnet, monkeypatch):
    pairs = [*random_pairs(120), ("", ""), ("a", ""), ("", "a")]
    ours = meteor_scores(pairs, wordnet, 1, lambda done: None)
    assert ours == nltks(pairs, wordnet, monkeypatch)
    assert len(set(ours)) > 80


@pytest.mark.engine
def test_meteor_in_several_processes_is_that_in_one(wordnet):
    pairs, done = random_pairs(100), []
    assert meteor_scores(pairs, wordnet, 2, done.append) == meteor_scores(
        pairs, wordnet, 1, lambda done: None
    )
    assert done == list(range(1, 101))


@pytest.mark.engine
def test_no_semaphore_outlives_the_processes_of_an_interrupted_score(wordnet):
    def interrupt(done):
        raise KeyboardInterrupt

    def semaphores():
        return {id(one) for one in gc.get_objects() if isinstance(one, SemLock)}

    before = semaphores()
    with pytest.raises(KeyboardInterrupt):
        meteor_scores(random_pairs(100), wordnet, 2, interrupt)
    assert semaphores() <= before


def kill_process(wordnet, pair):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.engine
def test_a_killed_process_is_one_error(wordnet, monkeypatch):
    monkeypatch.setattr(meteor, "_score", kill_process)
    with pytest.raises(RunError, match="killed"):
        meteor_scores(random_pairs(40), wordnet, 2, lambda done: None)


def test_what_is_printed_and_written(files, wordnet, put_bert_score, tmp_path, capfd):
    ours, theirs = files
    put_bert_score()
    model = tmp_path / "roberta"
    model.mkdir()
    (model / "config.json").write_text('{"num_hidden_layers": 24}')
    where = ("--wordnet", wordnet.parents[1], "--bert-model", model, "--device", "cpu")
    code, stdout = score(capfd, "-m", "20b", *where, "-o", "scores.parquet")
    assert code == 0
    scores = meteor_scores(list(zip(ours, theirs, strict=True)), wordnet, 1, lambda done: None)
    f1 = [2 * len(set(a.split()) & set(b.split())) / max(len(set(a.split())) + len(set(b.split())), 1)
          for a, b in zip(ours, theirs, strict=True)]  # fmt: skip
    lines = stdout.splitlines()
    means = [round(sum(each) / 5, 6) for each in (scores, f1)]
    assert lines[:3] == ["items\t5", f"meteor\t{means[0]}", f"bertscore_f1\t{means[1]}"]
    notes = "\n".join(lines[3:])
    assert "1 line is empty in both files (first: 5)" in notes
    assert f"without them: meteor {sum(scores) / 4:.6f}" in notes
    assert "1 line is empty in the submission only (first: 4)" in notes
    assert "empty in the references" not in notes
    table = pq.read_table(tmp_path / "scores.parquet").to_pydict()
    assert table["line"] == [1, 2, 3, 4, 5]
    assert table["meteor"] == scores
    assert table["bertscore_f1"] == f1
    assert table["submission_tokens"] == [len(tokenizer.encode(text)) for text in ours]
    from bert_score import BERTScorer

    assert BERTScorer.calls == [
        {"lang": "en", "model_type": str(model), "num_layers": 24, "device": "cpu"},
        (5, 64),
    ]


def test_thresholds(files, wordnet, tmp_path, capfd):
    least = tmp_path / "threshold.json"
    for text, expected in (('{"meteor": 0.2}', 0), ('{"meteor": 0.9}', 5), ("{}", 0)):
        least.write_text(text)
        code, stdout = score(capfd, "-m", "20b", "--wordnet", wordnet, "--thresholds", least)
        assert (code, "BELOW" in stdout) == (expected, expected == 5)
        assert "bertscore_f1 is left out" in stdout
    for text, words in (
        ('{"bertscore_f1": 0.9}', "bert-score is not installed"),
        ('{"meteor": "high"}', "Expected `float"),
        ('{"METEOR": 1}', "unknown field"),
        ("[", "--thresholds"),
    ):
        least.write_text(text)
        code, stderr = score(capfd, "-m", "20b", "--wordnet", wordnet, "--threshold", least)
        assert (code, words in stderr) == (2, True), stderr


def test_other_lengths_and_scripts(tmp_path, wordnet, capfd):
    ours = write_ids(tmp_path / "a", ["the dog", "собака бежит", "x 漢字漢字"])
    theirs = write_ids(tmp_path / "b", ["the dog", "the dog runs"])
    theirs.write_text(theirs.read_text().rstrip())
    code, stdout = score(capfd, "-s", ours, "-r", theirs, "--wordnet", wordnet)
    assert code == 0
    assert stdout.startswith("items\t2\n")
    assert f"{theirs}: nothing follows its last id" in stdout
    assert f"{ours} has 3 lines, {theirs} 2: only the first 2 of both are compared" in stdout
    assert "1 line is in another script than the reference (first: 2, CYRILLIC and LATIN)" in stdout


def test_wordnet_as_an_archive_and_where_nltk_looks(files, wordnet, tmp_path, monkeypatch, capfd):
    (tmp_path / "corpora").mkdir()
    with zipfile.ZipFile(tmp_path / "corpora/wordnet.zip", "w") as archive:
        for file in wordnet.iterdir():
            archive.write(file, f"wordnet/{file.name}")
    found = {score(capfd, "-m", "20b", "--wordnet", path)[1] for path in
             (wordnet, wordnet.parents[1], tmp_path, tmp_path / "corpora/wordnet.zip")}  # fmt: skip
    monkeypatch.setattr("nltk.data.path", [str(tmp_path / "nowhere"), str(wordnet.parents[1])])
    found.add(score(capfd, "-m", "20b")[1])
    assert len(found) == 1
    assert "items\t5" in found.pop()


REFUSED = [
    ((), "score needs --model, or --input and --reference-data"),
    (("-m", "7b"), "invalid choice"),
    (("-m", "120b"), "output_120b_token_ids.txt: cannot be read"),
    (("-m", "20b", "-s", "empty"), "empty: no lines"),
    (("-m", "20b", "-s", "wrong"), "line 1, column 3: 'x' is no token id"),
    (("-m", "20b", "--jobs", 0), "--num-workers is 0"),
    (("-m", "20b", "--wordnet", "submission"), "no data.noun there"),
    (("-m", "20b", "--wordnet", "broken"), "cannot be read as WordNet"),
    (("-m", "20b", "--bert-model", "."), "run ./setup.sh --with-score, then ./mlperf prompts score"),
    (("-m", "20b", "-o", "no/scores.parquet"), "cannot be written"),
    (("-m", "20b", "-o", "submission"), "cannot be written"),
    (("-m", "20b", "-o", "submission/output_20b_token_ids.txt"), "is the input"),
    (("-m", "20b", "-o", "references/output_20b_token_ids.txt"), "is the input"),
    (("-m", "20b", "--thresholds", "nowhere"), "--thresholds nowhere"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=lambda value: str(value)[-20:])
def test_refusals(words, message, files, wordnet, tmp_path, capfd):
    (tmp_path / "empty").touch()
    (tmp_path / "wrong").write_text("1 x\n")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/data.noun").touch()
    found = () if "--wordnet" in words else ("--wordnet", wordnet)
    code, stderr = score(capfd, *words, *found)
    assert (code, message in stderr) == (2, True), stderr


def test_without_both_there_is_no_score(files, capfd):
    _, stderr = score(capfd, "-m", "20b")
    for words in ("meteor is left out: no WordNet", "bertscore_f1 is left out: bert-score is not installed"):
        assert words in stderr
    code, stderr = score(capfd, "-m", "20b", "-s", "absent")
    assert (code, "absent: " in stderr, "left out" in stderr) == (2, True, False)


@pytest.mark.parametrize(
    ("version", "layers", "message"),
    [("5.0.0", 24, "texts; run ./setup.sh --with-score"), ("4.57.6", 12, "--num-layers is 24, the model in"),
     ("4.57.6", None, "config.json: No such file")],
)  # fmt: skip
def test_a_model_or_package_that_would_give_other_scores(
    version, layers, message, files, put_bert_score, tmp_path, monkeypatch, capfd
):
    put_bert_score(version)
    model = tmp_path / "models/bs_model/roberta-large-mnli"
    model.mkdir(parents=True)
    if layers:
        (model / "config.json").write_text(f'{{"num_hidden_layers": {layers}}}')
    monkeypatch.setenv("MODELS_ROOT", str(tmp_path / "models"))
    code, stderr = score(capfd, "-m", "20b")
    assert (code, message in stderr) == (2, True), stderr


def test_help_imports_no_package_of_a_metric():
    code = (
        "import sys; from harness.batch.batch_options import build_parser; build_parser().format_help(); "
        "assert not {'torch', 'nltk', 'bert_score', 'transformers', 'numpy', 'pyarrow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
