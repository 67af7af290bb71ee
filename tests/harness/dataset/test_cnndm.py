"""The builder of llama3.1-8b's dataset, against what the reference implementation's script writes.

The files in tests/data/cnndm were written by the steps of download_cnndm.py (mlcommons/inference) with
datasets 5.2.0, transformers 5.23.0 and simplejson 4.3.0, from made-up articles and the sample's tokenizer.
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.dataset import cnndm
from scripts.build_cnndm import main
from tests.kit import DATA
from tests.runs import SAMPLES, main_here

GOLDEN = DATA / "cnndm"
TOKENIZER = SAMPLES / "cnn_sample_tokenizer.json"


def golden_rows():
    return json.loads((GOLDEN / "seven.json").read_text("utf-8"))


def validation_split(path, **changes):
    """A parquet file as Hugging Face offers it."""
    rows = golden_rows()
    columns = {
        "article": [row["input"] for row in rows],
        "highlights": [row["output"] for row in rows],
        "id": [f"{number:040x}" for number in range(len(rows))],
    }
    pq.write_table(
        pa.table({name: cells for name, cells in (columns | changes).items() if cells is not None}), path
    )
    return path


def build(capture, tmp_path, *words, tokenizer=TOKENIZER, output="cnn_eval.json"):
    if not (tmp_path / "validation.parquet").exists():
        validation_split(tmp_path / "validation.parquet")
    flags = ["--input-file", tmp_path / "validation.parquet", "--tokenizer", tokenizer]
    given = [*flags, "--output-file", tmp_path / output, *words]
    code, _, stderr = main_here(capture, main, list(map(str, given)))
    return code, stderr


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], "seven.json"),
        (["--total-count", "3"], "three_shuffled.json"),
        (["--n_samples", "3"], "three_shuffled.json"),
    ],
)
def test_same_bytes_as_the_reference_implementation(tmp_path, words, name, capfd):
    code, said = build(capfd, tmp_path, *words)
    assert code == 0, said
    assert (tmp_path / "cnn_eval.json").read_bytes() == (GOLDEN / name).read_bytes()
    assert "7 rows" in said  # of another number than the official split
    assert "13368" in said


def test_the_shuffle_is_that_of_datasets():
    """Dataset.shuffle(seed=42) of datasets 5.2.0, for as many rows as the validation split has."""
    edge = cnndm.selected(cnndm.ROWS, 5000)
    assert (edge[:5], edge[-3:]) == ([1517, 10554, 910, 12519, 158], [8507, 7547, 6074])
    assert len(set(edge)) == 5000
    assert list(cnndm.selected(4, None)) == [0, 1, 2, 3]


def with_cells(folder, **columns):
    validation_split(folder / "validation.parquet", **columns)
    return {}


def begins_otherwise(path):
    content = json.loads(TOKENIZER.read_text("utf-8"))
    path.write_text(json.dumps(content | {"post_processor": None}))
    return path


BAD = {
    "no such tokenizer": (lambda p: {"tokenizer": p / "absent"}, "absent: No such file"),
    "a folder without tokenizer.json": (lambda p: {"tokenizer": p}, "tokenizer.json: No such file"),
    "no tokenizer": (lambda p: {"tokenizer": validation_split(p / "x.parquet")}, "no tokenizer"),
    "another tokenizer": (lambda p: {"tokenizer": begins_otherwise(p / "t.json")}, "begins a text with []"),
    "too many rows": (lambda p: {"words": ["--total-count", "8"]}, "--total-count is 8, expected 1 to 7"),
    "no rows asked for": (lambda p: {"words": ["--total-count", "0"]}, "--total-count is 0"),
    "no such folder": (lambda p: {"output": "absent/cnn_eval.json"}, "absent"),
    "no highlights": (
        lambda p: with_cells(p, highlights=None),
        "no column highlights; its columns are article, id",
    ),
    "an article that is null": (
        lambda p: with_cells(p, article=["a", None, *"bcdef"]),
        "row 1: article and highlights",
    ),
    "no articles": (
        lambda p: with_cells(p, **dict.fromkeys(("article", "highlights", "id"), pa.array([], pa.string()))),
        "no rows, expected articles",
    ),
}


@pytest.mark.parametrize(("prepare", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_clear_line(tmp_path, prepare, message, capfd):
    given = prepare(tmp_path)
    code, said = build(capfd, tmp_path, *given.pop("words", []), **given)
    *_, last = said.splitlines()
    assert code == 2 and message in last
    assert not list(tmp_path.glob("cnn_eval.json*"))
