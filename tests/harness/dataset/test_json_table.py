"""A dataset in JSON: an array of objects, as llama3.1-8b's cnn_eval.json is."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.dataset.samples import load_samples
from harness.dataset.table import open_table
from harness.errors import EXIT_USAGE, DatasetError

ROOT = Path(__file__).parents[3]
VOCABULARY = 201088
PROMPTS = [[200006, 17360, 5], [1], [201087, 0]]


def json_rows(path, cells, column="tok_input", **layout):
    path.write_text(
        json.dumps([{"output": f"é{n}", column: cell} for n, cell in enumerate(cells)], **layout), "utf-8"
    )
    return path


def by_pandas(path, cells):
    pd.DataFrame({"tok_input": list(cells), "url": "a/b"}).to_json(path, orient="records")
    return path


def parquet(path):
    pq.write_table(pa.table({"tok_input": PROMPTS, "output": ["é0", "é1", "é2"]}), path)
    return path


def pickled(path):
    pd.DataFrame({"tok_input": PROMPTS, "output": ["é0", "é1", "é2"]}).to_pickle(path)
    return path


def written(path, name, content):
    (path / name).write_bytes(content)
    return path / name


def shortened(path, keep):
    return written(path.parent, path.name, path.read_bytes()[:keep])


def load(path, **options):
    return load_samples(path, vocabulary_size=VOCABULARY, **options)


GOOD = {
    "as Python writes it": lambda p: json_rows(p / "a.json", PROMPTS),
    "as the official file of llama3.1-8b": lambda p: json_rows(
        p / "cnn_eval.json", PROMPTS, indent=4, ensure_ascii=False
    ),
    "another name of the column": lambda p: json_rows(p / "a.json", PROMPTS, column="input_tokens"),
    "after a byte order mark": lambda p: written(
        p, "a.json", b"\xef\xbb\xbf" + json_rows(p / "b.json", PROMPTS).read_bytes() + b"\n"
    ),
    "under a suffix of no format": lambda p: json_rows(p / "a.txt", PROMPTS),
    "by pandas": lambda p: by_pandas(p / "a.json", PROMPTS),
}


@pytest.mark.parametrize("write", GOOD.values(), ids=GOOD)
def test_load(write, tmp_path):
    path = write(tmp_path)
    samples = load(path)
    assert [samples.tokens(i).tolist() for i in range(len(samples))] == PROMPTS
    assert samples.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


BAD = {
    "half a JSON file": (
        lambda p: shortened(json_rows(p / "a.json", PROMPTS, indent=4), 120),
        "not a readable JSON array of objects: Input data was truncated",
    ),
    "JSON without its last byte": (lambda p: shortened(json_rows(p / "a.json", PROMPTS), -1), "truncated"),
    "two JSON arrays": (lambda p: written(p, "a.json", b'[{"a": 1}]\n[{"a": 1}]'), "trailing characters"),
    "a JSON row without the column": (
        lambda p: written(p, "a.json", b'[{"tok_input": [1], "x": 1}, {"x": 1}]'),
        "row 1: no tok_input",
    ),
    "no JSON row with the column": (
        lambda p: written(p, "a.json", b'[{"input": "a"}]'),
        "no column input_tokens or tok_input; its columns are input",
    ),
    "a JSON object": (lambda p: written(p, "a.json", b'{"tok_input": [[1]]}'), "Expected `array`"),
    "JSON lines": (lambda p: written(p, "a.jsonl", b'{"tok_input": [1]}\n' * 2), "Expected `array`"),
    "JSON rows that are lists": (lambda p: written(p, "a.json", b"[[1], [2]]"), "Expected `object`"),
    "no JSON rows": (lambda p: written(p, "a.json", b"[]"), "no rows"),
    "empty JSON rows": (lambda p: written(p, "a.json", b"[{}, {}]"), "its columns are none"),
    "JSON named parquet": (
        lambda p: json_rows(p / "a.parquet", PROMPTS),
        "like a parquet file, but holds JSON",
    ),
    "parquet named JSON": (lambda p: parquet(p / "a.json"), "like a JSON file, but holds parquet"),
    "an error page named JSON": (lambda p: written(p, "a.json", b"<html>404"), "nor JSON"),
    "a Git LFS pointer": (lambda p: written(p, "a.json", b"version https://git-lfs"), "nor JSON"),
    "a null JSON row": (lambda p: json_rows(p / "a.json", [[1], None]), "row 1: null, expected a list"),
    "a null JSON token": (lambda p: json_rows(p / "a.json", [[1], [2, None]]), "row 1: null at position 1"),
    "an empty JSON prompt": (lambda p: json_rows(p / "a.json", [[1], []]), "row 1: empty prompt"),
    "a JSON 3.0": (lambda p: json_rows(p / "a.json", [[1], [2, 3.0]]), "row 1: float 3.0 at position 1"),
    "a JSON boolean": (lambda p: json_rows(p / "a.json", [[1, True]]), "row 0: bool True at position 1"),
    "JSON text": (lambda p: json_rows(p / "a.json", ["1 2"]), "row 0: str, expected a list"),
    "a JSON number": (lambda p: json_rows(p / "a.json", [7]), "row 0: int, expected a list"),
    "a JSON object for ids": (lambda p: json_rows(p / "a.json", [{"0": 1}]), "row 0: dict, expected a list"),
    "nested JSON": (lambda p: json_rows(p / "a.json", [[1], [[2]]]), "row 1: list at position 0"),
    "a negative JSON id": (lambda p: json_rows(p / "a.json", [[-7]]), "row 0: token -7 at position 0"),
    "a JSON id beyond": (
        lambda p: json_rows(p / "a.json", [[1, 2], [201088]]),
        "row 1: token 201088 at position 0 is beyond the vocabulary, whose last id is 201087",
    ),
    "a JSON id beyond 32 bits": (lambda p: json_rows(p / "a.json", [[1], [2**40]]), "token 1099511627776"),
    "a giant in JSON": (lambda p: json_rows(p / "a.json", [[10**4000]]), "row 0: an integer of 13288 bits"),
    "a digit too many for JSON": (
        lambda p: written(p, "a.json", b'[{"tok_input": [%b]}]' % (b"9" * 5000)),
        "row 0: tok_input: not a readable",
    ),
    "deep JSON": (lambda p: written(p, "a.json", b'[{"tok_input": ' + b"[" * 100_000), "recursion"),
    "JSON that is not UTF-8": (lambda p: written(p, "a.json", b'[{"\xff": 1}]'), "not a readable JSON"),
}


@pytest.mark.parametrize(("write", "message"), BAD.values(), ids=BAD)
def test_bad_file_is_one_clear_line(write, message, tmp_path):
    path = write(tmp_path)
    with pytest.raises(DatasetError) as caught:
        load(path)
    text = str(caught.value)
    assert message in text and str(path) in text and "\n" not in text
    assert len(text) < 300 + len(str(path)) and caught.value.exit_code == EXIT_USAGE


def test_one_damaged_byte_is_noticed_or_harmless(tmp_path):
    whole = json_rows(tmp_path / "a.json", PROMPTS, indent=1).read_bytes()
    for place in range(len(whole)):
        for change in (0x01, 0x55, 0x80):
            damaged = whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :]
            try:
                assert len(load(written(tmp_path, "a.txt", damaged))) == 3
            except DatasetError as error:
                assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("write", "name"),
    [(lambda p: json_rows(p, PROMPTS), "a.json"), (parquet, "a.parquet"), (pickled, "a.pkl")],
)
def test_texts_are_read_alike_from_every_format(write, name, tmp_path):
    """Grading reads references with the reader of prompts."""
    table = open_table(write(tmp_path / name))
    assert set(table.names) == {"tok_input", "output"}
    assert table.column("output") == ["é0", "é1", "é2"] == list(table.cells("output"))


def test_json_of_official_size_stays_small(tmp_path):
    """13,368 rows, as cnn_eval.json has: what is read takes less than four times its file in memory."""
    row = {"input": "a" * 4000, "tok_input": [128000, *range(50_000, 50_600)], "output": "b" * 300}
    text = json.dumps(row, indent=4)
    path = written(tmp_path, "a.json", ("[" + ",".join([text] * 13368) + "]").encode())
    program = f"""
import resource
from pathlib import Path
from harness.dataset.samples import load_samples
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
samples = load_samples(Path({str(path)!r}), vocabulary_size=128256)
assert len(samples) == 13368 and len(samples.ids) == 13368 * 601
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True)
    assert int(done.stdout) * 1024 < 4 * path.stat().st_size
