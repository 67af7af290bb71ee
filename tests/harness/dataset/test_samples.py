"""Datasets in every format: parquet, pickles, and JSON as llama3.1-8b's cnn_eval.json is."""

import gzip
import hashlib
import json
import pickle
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.dataset.samples import load_samples, prompt_efforts
from harness.errors import EXIT_USAGE, DatasetError
from tests.runs import ROOT

VOCABULARY = 201088
PROMPTS = [[200006, 17360, 5], [1], [201087, 0]]


def raw(name, content):
    """As of each of these builders: a function that writes a file into a folder and returns its path."""

    def write(folder):
        (folder / name).write_bytes(content)
        return folder / name

    return write


def parquet(cells, column="input_tokens", kind=None, name="a.parquet", **options):
    def write(folder):
        array = pa.array(cells, type=kind or pa.list_(pa.int64()))
        pq.write_table(pa.table({"other": ["x"] * len(array), column: array}), folder / name, **options)
        return folder / name

    return write


def pickled(cells, column="input_tokens", name="a.pkl"):
    frame = {column: pd.Series(list(cells), dtype=object), "n": range(len(cells))}
    return raw(name, pickle.dumps(pd.DataFrame(frame)))


def json_text(cells, column="tok_input", **layout):
    rows = [{"output": f"é{n}", column: cell} for n, cell in enumerate(cells)]
    return json.dumps(rows, **layout).encode()


def json_rows(cells, name="a.json", **options):
    return raw(name, json_text(cells, **options))


def by_pandas(folder):
    pd.DataFrame({"tok_input": PROMPTS, "url": "a/b"}).to_json(folder / "a.json", orient="records")
    return folder / "a.json"


def load(path, **options):
    return load_samples(path, vocabulary_size=VOCABULARY, **options)


GOOD = {
    "int64 lists": parquet(PROMPTS),
    "int32 lists": parquet(PROMPTS, kind=pa.list_(pa.int32())),
    "uint64 lists": parquet(PROMPTS, kind=pa.list_(pa.uint64())),
    "large lists": parquet(PROMPTS, kind=pa.large_list(pa.int32())),
    "old column name": parquet(PROMPTS, column="tok_input"),
    "many row groups": parquet(PROMPTS, row_group_size=1),
    "a suffix of no format": parquet(PROMPTS, name="a.pq"),
    "capital suffix": parquet(PROMPTS, name="A.PARQUET"),
    "pickled lists": pickled(PROMPTS),
    "pickled tuples": pickled([tuple(row) for row in PROMPTS]),
    "pickled arrays": pickled([np.array(row) for row in PROMPTS], name="a.pickle"),
    "pickled unsigned": pickled([np.array(row, np.uint32) for row in PROMPTS], name="a.pickle"),
    "pickled numpy scalars": pickled([[np.int64(i) for i in row] for row in PROMPTS]),
    "JSON as Python writes it": json_rows(PROMPTS),
    "as the official file of llama3.1-8b": json_rows(PROMPTS, indent=4, ensure_ascii=False),
    "JSON after a byte order mark": raw("a.json", b"\xef\xbb\xbf" + json_text(PROMPTS) + b"\n"),
    "JSON by pandas": by_pandas,
}


@pytest.mark.parametrize("write", GOOD.values(), ids=GOOD)
def test_load(write, tmp_path):
    path = write(tmp_path)
    samples = load(path)
    assert [samples.tokens(i).tolist() for i in range(len(samples))] == PROMPTS
    assert samples.ids.dtype == np.int32 and samples.offsets.tolist() == [0, 3, 4, 6]
    assert samples.lengths.tolist() == [3, 1, 2]
    assert samples.longest(10) == 13
    assert samples.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert samples.path == path


def test_ids_cannot_be_changed(tmp_path):
    samples = load(parquet(PROMPTS)(tmp_path))
    for array in (samples.ids, samples.offsets, samples.tokens(0), samples.head(1).ids):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9


def test_no_such_sample(tmp_path):
    samples = load(parquet(PROMPTS)(tmp_path))
    for index in (-1, 3):
        with pytest.raises(IndexError):
            samples.tokens(index)


def test_today_s_column_wins_over_the_old_one(tmp_path):
    table = pa.table({"tok_input": pa.array([[1]]), "input_tokens": pa.array([[2]])})
    pq.write_table(table, tmp_path / "a.parquet")
    assert load(tmp_path / "a.parquet").tokens(0).tolist() == [2]


def test_only_the_token_column_is_read(tmp_path):
    """Garbage in the pages of another column goes unnoticed, garbage in the pages of this one does not."""
    path = parquet([[7] * 50] * 200, compression="zstd")(tmp_path)
    whole = path.read_bytes()
    columns = pq.ParquetFile(path).metadata.row_group(0)
    for number, works in ((0, True), (1, False)):
        start = columns.column(number).data_page_offset
        path.write_bytes(whole[:start] + b"\xff" * 20 + whole[start + 20 :])
        refused = pytest.raises(DatasetError, match=r"not a readable parquet file: .*; download or make it")
        with nullcontext() if works else refused:
            assert len(load(path)) == 200


def test_head(tmp_path):
    path = parquet(PROMPTS)(tmp_path)
    samples = load(path, max_samples=2)
    assert (samples.offsets.tolist(), samples.ids.tolist()) == ([0, 3, 4], [200006, 17360, 5, 1])
    assert samples.sha256 == load(path).sha256
    assert len(load(path, max_samples=3)) == 3
    many = "3 rows, not the 4 .*the complete file, or ask for 3 at most"
    for asked, message in ((0, "at least 1"), (-1, "at least 1"), (4, many)):
        with pytest.raises(DatasetError, match=message):
            load(path, max_samples=asked)


def folder(path):
    (path / "folder.parquet").mkdir()
    return path / "folder.parquet"


def shortened(write, keep):
    def shorten(folder):
        path = write(folder)
        path.write_bytes(path.read_bytes()[:keep])
        return path

    return shorten


def twins(folder):
    path = folder / "a.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([[1]])] * 2, ["input_tokens"] * 2), path)
    return path


def frame(*arguments, **options):
    return raw("a.pkl", pickle.dumps(pd.DataFrame(*arguments, **options)))


NESTED = pa.list_(pa.list_(pa.int64()))
BAD = {
    "missing": (lambda p: p / "absent.parquet", "no such file"),
    "a folder": (folder, "not a regular file"),
    "an empty file": (raw("a.parquet", b""), "empty file"),
    "a csv": (
        raw("a.csv", b"input_tokens\n1"),
        "holds neither parquet nor a pickle of protocol 2 or later nor JSON; download or make",
    ),
    "no suffix": (raw("data", b"x"), "holds neither parquet"),
    "a pointer of git-lfs": (
        raw("a.parquet", b"version https://git-lfs.github.com/spec/v1\n"),
        "git lfs pull",
    ),
    "text named parquet": (raw("a.parquet", b"hello world"), "nor JSON; download or make it again"),
    "gzip": (raw("a.json.gz", gzip.compress(b"[{}]")), "a.json.gz is compressed by gzip; unpack it"),
    "gzip, as pandas can write it": (raw("a.pkl", gzip.compress(b"\x80\x04")), "a.pkl is compressed by gzip"),
    "two bytes": (raw("a.parquet", b"PA"), "holds neither"),
    "a pickle named parquet": (pickled(PROMPTS, name="a.parquet"), "parquet file, but holds pickle"),
    "truncated parquet": (shortened(parquet(PROMPTS), -9), "truncated"),
    "truncated pickle": (shortened(pickled(PROMPTS), 90), "not a readable pickle"),
    "a broken footer": (raw("a.parquet", b"PAR1" + b"\xff" * 99 + b"PAR1"), "not a readable parquet"),
    "no rows": (parquet([]), "no rows"),
    "wrong column": (parquet(PROMPTS, column="tokens"), "its columns are other, tokens"),
    "null row later": (parquet([[1]] * 700 + [None]), "row 700: null"),
    "null pickled row": (pickled([[1], None]), "row 1: null"),
    "null token later": (parquet([[1]] * 700 + [[2, 3, None]]), "row 700: token at position 2 is null"),
    "null token in lists of one size": (
        parquet([[1, 2]] * 700 + [[3, None]], kind=pa.list_(pa.int32(), 2)),
        "row 700: token at position 1 is null",
    ),
    "null pickled token": (pickled([[1], [2, None]]), "row 1: null at position 1"),
    "empty prompt": (parquet([[1], []]), "row 1: empty prompt"),
    "only empty prompts": (parquet([[]], kind=pa.list_(pa.null())), "row 0: empty prompt"),
    "no rows of pandas": (parquet([], kind=pa.null()), "no rows, expected prompts"),
    "null rows of pandas": (parquet([None], kind=pa.null()), "row 0: null"),
    "floats": (parquet([[3.0]], kind=pa.list_(pa.float64())), "element: double>, expected"),
    "pickled 3.0": (pickled([[1], [2, 3.0]]), "row 1: float 3.0 at position 1"),
    "pickled float array": (pickled([np.array([3.0])]), "row 0: float64 values"),
    "booleans": (parquet([[True]], kind=pa.list_(pa.bool_())), "bool>, expected"),
    "pickled boolean": (pickled([[1, True]]), "row 0: bool True at position 1"),
    "pickled boolean array": (pickled([np.array([True])]), "row 0: bool values"),
    "pickled strings": (pickled([["1"]]), "row 0: str at position 0"),
    "text": (parquet(["1 2"], kind=pa.string()), "holds string, expected lists"),
    "pickled text": (pickled(["1 2", "3"]), "row 0: str, expected a list"),
    "nested": (parquet([[[1]]], kind=NESTED), "list<element: int64>>, expected"),
    "pickled matrix": (pickled([np.array([[1]])]), "a cell is an array of 2 dimensions"),
    "ragged": (pickled([[1], [2, [3]]]), "row 1: list at position 1"),
    "negative": (parquet([[1], [2, -1]]), "row 1: token -1 at position 1 is negative"),
    "beyond": (
        parquet([[1, 2], [201088]]),
        "token 201088 at position 0 is beyond the vocabulary, whose last id is 201087; check --benchmark",
    ),
    "beyond 32 bits": (parquet([[1], [2**32]]), "row 1: token 4294967296, expected"),
    "pickled beyond 32 bits": (pickled([[1], [2**40]]), "row 1: token 1099511627776"),
    "pickled array beyond": (pickled([np.array([2**40])]), "row 0: token 1099511627776"),
    "a giant": (pickled([[10**4000]]), "row 0: an integer of 13288 bits"),
    "two columns of one name": (twins, "several columns are called input_tokens"),
    "a column of numbers": (frame({"input_tokens": [1, 2]}), "row 0: int, expected a list"),
    "text alone": (
        frame({"text_input": ["a"], "dataset": ["aime"]}),
        "text_input, but neither input_tokens nor tok_input",
    ),
    "half a JSON file": (
        shortened(json_rows(PROMPTS, indent=4), 120),
        "not a readable JSON array of objects: Input data was truncated",
    ),
    "JSON without its last byte": (shortened(json_rows(PROMPTS), -1), "truncated"),
    "two JSON arrays": (raw("a.json", b'[{"a": 1}]\n[{"a": 1}]'), "trailing characters"),
    "a JSON row without the column": (
        raw("a.json", b'[{"tok_input": [1], "x": 1}, {"x": 1}]'),
        "row 1: no tok_input",
    ),
    "no JSON row with the column": (
        raw("a.json", b'[{"input": "a"}]'),
        "no column input_tokens or tok_input; its columns are input",
    ),
    "JSON lines": (raw("a.jsonl", b'{"tok_input": [1]}\n' * 2), "make an array of JSON lines (jq -s"),
    "JSON rows that are lists": (raw("a.json", b"[[1], [2]]"), "Expected `object`"),
    "no JSON rows": (raw("a.json", b"[]"), "no rows"),
    "empty JSON rows": (raw("a.json", b"[{}, {}]"), "its columns are none"),
    "parquet named JSON": (parquet(PROMPTS, name="a.json"), "like a JSON file, but holds parquet"),
    "an error page named JSON": (raw("a.json", b"<html>404"), "nor JSON"),
    "a JSON boolean": (json_rows([[1, True]]), "row 0: bool True at position 1"),
    "a JSON number": (json_rows([7]), "row 0: int, expected a list"),
    "a digit too many for JSON": (
        raw("a.json", b'[{"tok_input": [%b]}]' % (b"9" * 5000)),
        "row 0: tok_input: not a readable",
    ),
    "deep JSON": (raw("a.json", b'[{"tok_input": ' + b"[" * 100_000), "recursion"),
    "JSON that is not UTF-8": (raw("a.json", b'[{"\xff": 1}]'), "not a readable JSON"),
}


@pytest.mark.parametrize(("write", "message"), BAD.values(), ids=BAD)
def test_bad_file_is_one_clear_line(write, message, tmp_path):
    path = write(tmp_path)
    with pytest.raises(DatasetError) as caught:
        load(path)
    text = str(caught.value)
    assert message in text and str(path) in text and "\n" not in text
    assert len(text) < 300 + len(str(path)) and caught.value.exit_code == EXIT_USAGE


def test_one_damaged_byte_of_json_is_noticed_or_harmless(tmp_path):
    whole = json_text(PROMPTS, indent=1)
    for place in range(len(whole)):
        for change in (0x01, 0x80):
            damaged = whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :]
            try:
                assert len(load(raw("a.txt", damaged)(tmp_path))) == 3
            except DatasetError as error:
                assert "\n" not in str(error)


@pytest.mark.engine
def test_large_json_stays_small(tmp_path):
    """A thousand rows as in cnn_eval.json: what is read takes less than four times its file in memory."""
    row = {"input": "a" * 4000, "tok_input": [128000, *range(50_000, 50_600)], "output": "b" * 300}
    text = json.dumps(row, indent=4)
    path = raw("a.json", ("[" + ",".join([text] * 1000) + "]").encode())(tmp_path)
    program = f"""
import re
from pathlib import Path
from harness.dataset.samples import load_samples
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
before = peak()
samples = load_samples(Path({str(path)!r}), vocabulary_size=128256)
assert len(samples) == 1000 and len(samples.ids) == 1000 * 601
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True)
    assert int(done.stdout) * 1024 < 4 * path.stat().st_size


EVERY_DAMAGE = """
import sys
from pathlib import Path
from harness.errors import DatasetError
from harness.dataset.samples import load_samples

file = Path(sys.argv[1])
whole = file.read_bytes()
for place in range(len(whole)):
    for change in (0x01, 0x55):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :])
        try:
            load_samples(file, vocabulary_size=201088)
        except DatasetError as error:
            assert "\\n" not in str(error)
"""


@pytest.mark.engine
def test_one_damaged_byte_never_ends_the_process(tmp_path):
    """Whatever byte of a file is wrong, also in its metadata, where pyarrow can abort."""
    path = parquet(PROMPTS)(tmp_path)
    subprocess.run([sys.executable, "-c", EVERY_DAMAGE, str(path)], check=True, cwd=ROOT)


def test_unreadable_file(tmp_path, monkeypatch):
    """Permissions do not bind root, so the system's answer is put in its mouth."""
    path = parquet(PROMPTS)(tmp_path)

    def refuse(*_arguments, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(DatasetError, match="cannot be read: Permission denied"):
        load(path)


EFFORTS = {"low": [30377, 289, 25, 4465], "medium": [30377, 289, 25, 14093], "high": [30377, 289, 25, 1932]}
END = 200007
HEAD = [200006, 17360, 200008]
PROMPT_EFFORTS = [
    ([*HEAD, *EFFORTS["low"], END, 5], "low"),
    ([*HEAD, *EFFORTS["high"], END], "high"),
    ([*EFFORTS["medium"], END], "medium"),
    ([*HEAD, 9, END, 200006, *EFFORTS["high"], END], None),  # a user who writes it changes nothing
    ([*HEAD, *EFFORTS["low"], *EFFORTS["high"], END], "low"),
    ([*HEAD, *EFFORTS["high"], *EFFORTS["low"], END], "high"),
    ([*HEAD, 30377, 289, 25, END, 4465], None),  # the end inside the marker
    ([30377, 289], None),
    ([25, 4465, END], None),  # with the row before it, a marker across two rows
    ([*HEAD, *EFFORTS["low"]], "low"),  # no end at all
    ([30377, *EFFORTS["high"], END], "high"),
    ([7], None),
    ([30377, 289, 25], None),
]


def test_efforts(tmp_path):
    samples = load(parquet([prompt for prompt, _ in PROMPT_EFFORTS])(tmp_path))
    assert prompt_efforts(samples, EFFORTS) == tuple(effort for _, effort in PROMPT_EFFORTS)
    assert prompt_efforts(samples.head(3), EFFORTS) == ("low", "high", "medium")


@pytest.mark.parametrize("prompt", [[7], [30377, 289], [30377, 289, 25]])
def test_a_dataset_shorter_than_the_marker(prompt, tmp_path):
    samples = load(parquet([prompt])(tmp_path))
    assert prompt_efforts(samples, EFFORTS) == (None,)


def test_a_dataset_of_many_batches(tmp_path):
    random = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(random.integers(8, 300, 2000))])
    ids = random.integers(0, 199998, offsets[-1])
    for start in offsets[:-1]:
        ids[start : start + 8] = [*HEAD, *EFFORTS["low"], END]
    column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids))
    pq.write_table(pa.table({"input_tokens": column}), tmp_path / "perf.parquet")
    samples = load(tmp_path / "perf.parquet")
    assert (samples.ids == ids).all() and (samples.offsets == offsets).all()
    assert set(prompt_efforts(samples, EFFORTS)) == {"low"}
