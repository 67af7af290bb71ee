import hashlib
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.dataset.samples import load_samples, prompt_efforts
from harness.errors import EXIT_USAGE, DatasetError

ROOT = Path(__file__).parents[3]
VOCABULARY = 201088
PROMPTS = [[200006, 17360, 5], [1], [201087, 0]]


def parquet(path, cells, column="input_tokens", kind=None, **options):
    array = pa.array(cells, type=kind or pa.list_(pa.int64()))
    pq.write_table(pa.table({"other": ["x"] * len(array), column: array}), path, **options)
    return path


def pickled(path, cells, column="input_tokens"):
    pd.DataFrame({column: pd.Series(list(cells), dtype=object), "n": range(len(cells))}).to_pickle(path)
    return path


def load(path, **options):
    return load_samples(path, vocabulary_size=VOCABULARY, **options)


GOOD = {
    "int64 lists": lambda p: parquet(p / "a.parquet", PROMPTS),
    "int32 lists": lambda p: parquet(p / "a.parquet", PROMPTS, kind=pa.list_(pa.int32())),
    "uint64 lists": lambda p: parquet(p / "a.parquet", PROMPTS, kind=pa.list_(pa.uint64())),
    "large lists": lambda p: parquet(p / "a.parquet", PROMPTS, kind=pa.large_list(pa.int32())),
    "old column name": lambda p: parquet(p / "a.parquet", PROMPTS, column="tok_input"),
    "many row groups": lambda p: parquet(p / "a.parquet", PROMPTS, row_group_size=1),
    "a suffix of no format": lambda p: parquet(p / "a.pq", PROMPTS),
    "capital suffix": lambda p: parquet(p / "A.PARQUET", PROMPTS),
    "pickled lists": lambda p: pickled(p / "a.pkl", PROMPTS),
    "pickled tuples": lambda p: pickled(p / "a.pkl", [tuple(row) for row in PROMPTS]),
    "pickled arrays": lambda p: pickled(p / "a.pickle", [np.array(row) for row in PROMPTS]),
    "pickled unsigned": lambda p: pickled(p / "a.pickle", [np.array(row, np.uint32) for row in PROMPTS]),
    "pickled numpy scalars": lambda p: pickled(p / "a.pkl", [[np.int64(i) for i in row] for row in PROMPTS]),
    "pickled old name": lambda p: pickled(p / "a.pkl", PROMPTS, column="tok_input"),
}


@pytest.mark.parametrize("write", GOOD.values(), ids=GOOD)
def test_load(write, tmp_path):
    path = write(tmp_path)
    samples = load(path)
    assert [samples.tokens(i).tolist() for i in range(len(samples))] == PROMPTS
    assert samples.ids.dtype == np.int32 and samples.offsets.tolist() == [0, 3, 4, 6]
    assert samples.lengths.tolist() == [3, 1, 2]
    assert samples.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert samples.path == path


def test_ids_cannot_be_changed(tmp_path):
    samples = load(parquet(tmp_path / "a.parquet", PROMPTS))
    for array in (samples.ids, samples.offsets, samples.tokens(0), samples.head(1).ids):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9


@pytest.mark.parametrize("index", [-1, 3])
def test_no_such_sample(index, tmp_path):
    with pytest.raises(IndexError):
        load(parquet(tmp_path / "a.parquet", PROMPTS)).tokens(index)


def test_today_s_column_wins_over_the_old_one(tmp_path):
    table = pa.table({"tok_input": pa.array([[1]]), "input_tokens": pa.array([[2]])})
    pq.write_table(table, tmp_path / "a.parquet")
    assert load(tmp_path / "a.parquet").tokens(0).tolist() == [2]


def test_only_the_token_column_is_read(tmp_path):
    """Garbage in the pages of another column goes unnoticed, garbage in the pages of this one does not."""
    path = parquet(tmp_path / "a.parquet", [[7] * 50] * 200, compression="zstd")
    whole = path.read_bytes()
    columns = pq.ParquetFile(path).metadata.row_group(0)
    for number, works in ((0, True), (1, False)):
        start = columns.column(number).data_page_offset
        path.write_bytes(whole[:start] + b"\xff" * 20 + whole[start + 20 :])
        if works:
            assert len(load(path)) == 200
        else:
            with pytest.raises(DatasetError, match="not a readable parquet file"):
                load(path)


def test_head(tmp_path):
    path = parquet(tmp_path / "a.parquet", PROMPTS)
    samples = load(path, max_samples=2)
    assert (
        len(samples) == 2
        and samples.offsets.tolist() == [0, 3, 4]
        and samples.ids.tolist() == [200006, 17360, 5, 1]
    )
    assert samples.sha256 == load(path).sha256
    assert len(load(path, max_samples=3)) == 3


@pytest.mark.parametrize(
    ("asked", "message"), [(0, "at least 1"), (-1, "at least 1"), (4, "3 rows, but 4 samples")]
)
def test_head_of_the_wrong_size(asked, message, tmp_path):
    with pytest.raises(DatasetError, match=message):
        load(parquet(tmp_path / "a.parquet", PROMPTS), max_samples=asked)


def nothing(path):
    return path / "absent.parquet"


def folder(path):
    (path / "folder.parquet").mkdir()
    return path / "folder.parquet"


def written(path, name, content):
    (path / name).write_bytes(content)
    return path / name


def shortened(path, keep):
    return written(path.parent, path.name, path.read_bytes()[:keep])


def twins(path):
    pq.write_table(pa.Table.from_arrays([pa.array([[1]])] * 2, ["input_tokens"] * 2), path)
    return path


NESTED = pa.list_(pa.list_(pa.int64()))
BAD = {
    "missing": (nothing, "no such file"),
    "a folder": (folder, "not a regular file"),
    "an empty file": (lambda p: written(p, "a.parquet", b""), "empty file"),
    "an empty pickle": (lambda p: written(p, "a.pkl", b""), "empty file"),
    "a csv": (lambda p: written(p, "a.csv", b"input_tokens\n1"), "suffix '.csv', expected"),
    "no suffix": (lambda p: written(p, "data", b"x"), "suffix 'missing', expected"),
    "text named parquet": (
        lambda p: written(p, "a.parquet", b"hello world"),
        "holds neither parquet nor a pickle",
    ),
    "text named pickle": (
        lambda p: written(p, "a.pkl", b"hello world"),
        "holds neither parquet nor a pickle",
    ),
    "two bytes": (lambda p: written(p, "a.parquet", b"PA"), "holds neither"),
    "a pickle named parquet": (
        lambda p: pickled(p / "a.parquet", PROMPTS),
        "like a parquet file, but holds pickle",
    ),
    "parquet named pickle": (
        lambda p: parquet(p / "a.pkl", PROMPTS),
        "like a pickle file, but holds parquet",
    ),
    "truncated parquet": (lambda p: shortened(parquet(p / "a.parquet", PROMPTS), -9), "truncated"),
    "truncated pickle": (lambda p: shortened(pickled(p / "a.pkl", PROMPTS), 90), "not a readable pickle"),
    "only the magic": (lambda p: written(p, "a.parquet", b"PAR1PAR1"), "not a readable parquet file"),
    "a broken footer": (
        lambda p: written(p, "a.parquet", b"PAR1" + b"\xff" * 99 + b"PAR1"),
        "not a readable parquet",
    ),
    "no rows": (lambda p: parquet(p / "a.parquet", []), "no rows"),
    "no pickled rows": (lambda p: pickled(p / "a.pkl", []), "no rows"),
    "two pickled columns of one name": (
        lambda p: written(
            p, "a.pkl", pickle.dumps(pd.DataFrame([[[1], [2]]], columns=["input_tokens", "input_tokens"]))
        ),
        "several columns are called input_tokens",
    ),
    "wrong column": (
        lambda p: parquet(p / "a.parquet", PROMPTS, column="tokens"),
        "its columns are other, tokens",
    ),
    "wrong pickled column": (lambda p: pickled(p / "a.pkl", PROMPTS, column="ids"), "its columns are ids, n"),
    "null row": (lambda p: parquet(p / "a.parquet", [[1], None]), "row 1: null"),
    "null row later": (lambda p: parquet(p / "a.parquet", [[1]] * 700 + [None]), "row 700: null"),
    "null pickled row": (lambda p: pickled(p / "a.pkl", [[1], None]), "row 1: null"),
    "null token": (
        lambda p: parquet(p / "a.parquet", [[1], [2, None]]),
        "row 1: token at position 1 is null",
    ),
    "null token later": (
        lambda p: parquet(p / "a.parquet", [[1]] * 700 + [[2, 3, None]]),
        "row 700: token at position 2 is null",
    ),
    "null pickled token": (lambda p: pickled(p / "a.pkl", [[1], [2, None]]), "row 1: null at position 1"),
    "empty prompt": (lambda p: parquet(p / "a.parquet", [[1], []]), "row 1: empty prompt"),
    "empty pickled prompt": (lambda p: pickled(p / "a.pkl", [[], [1]]), "row 0: empty prompt"),
    "only empty prompts": (
        lambda p: parquet(p / "a.parquet", [[]], kind=pa.list_(pa.null())),
        "row 0: empty prompt",
    ),
    "floats": (
        lambda p: parquet(p / "a.parquet", [[3.0]], kind=pa.list_(pa.float64())),
        "element: double>, expected",
    ),
    "pickled 3.0": (lambda p: pickled(p / "a.pkl", [[1], [2, 3.0]]), "row 1: float 3.0 at position 1"),
    "pickled float array": (lambda p: pickled(p / "a.pkl", [np.array([3.0])]), "row 0: float64 values"),
    "booleans": (lambda p: parquet(p / "a.parquet", [[True]], kind=pa.list_(pa.bool_())), "bool>, expected"),
    "pickled boolean": (lambda p: pickled(p / "a.pkl", [[1, True]]), "row 0: bool True at position 1"),
    "pickled boolean array": (lambda p: pickled(p / "a.pkl", [np.array([True])]), "row 0: bool values"),
    "strings": (lambda p: parquet(p / "a.parquet", [["1"]], kind=pa.list_(pa.string())), "string>, expected"),
    "pickled strings": (lambda p: pickled(p / "a.pkl", [["1"]]), "row 0: str at position 0"),
    "text": (lambda p: parquet(p / "a.parquet", ["1 2"], kind=pa.string()), "holds string, expected lists"),
    "pickled text": (lambda p: pickled(p / "a.pkl", ["1 2", "3"]), "row 0: str, expected a list"),
    "scalars": (lambda p: parquet(p / "a.parquet", [1, 2], kind=pa.int64()), "holds int64, expected lists"),
    "pickled scalars": (lambda p: pickled(p / "a.pkl", [1, 2]), "row 0: int, expected a list"),
    "nested": (lambda p: parquet(p / "a.parquet", [[[1]]], kind=NESTED), "list<element: int64>>, expected"),
    "pickled nested": (lambda p: pickled(p / "a.pkl", [[1], [[2]]]), "row 1: list at position 0"),
    "pickled matrix": (
        lambda p: pickled(p / "a.pkl", [np.array([[1]])]),
        "a cell is an array of 2 dimensions",
    ),
    "ragged": (lambda p: pickled(p / "a.pkl", [[1], [2, [3]]]), "row 1: list at position 1"),
    "negative": (
        lambda p: parquet(p / "a.parquet", [[1], [2, -1]]),
        "row 1: token -1 at position 1 is negative",
    ),
    "pickled negative": (lambda p: pickled(p / "a.pkl", [[-7]]), "row 0: token -7 at position 0 is negative"),
    "beyond": (
        lambda p: parquet(p / "a.parquet", [[1, 2], [201088]]),
        "row 1: token 201088 at position 0 is beyond the vocabulary, whose last id is 201087",
    ),
    "beyond 32 bits": (
        lambda p: parquet(p / "a.parquet", [[1], [2**32]]),
        "row 1: token 4294967296, expected",
    ),
    "pickled beyond 32 bits": (lambda p: pickled(p / "a.pkl", [[1], [2**40]]), "row 1: token 1099511627776"),
    "pickled array beyond": (
        lambda p: pickled(p / "a.pkl", [np.array([2**40])]),
        "row 0: token 1099511627776",
    ),
    "a giant": (lambda p: pickled(p / "a.pkl", [[10**4000]]), "row 0: an integer of 13288 bits"),
    "two columns of one name": (
        lambda p: twins(p / "a.parquet"),
        "several columns are called input_tokens",
    ),
    "a column of numbers": (
        lambda p: written(p, "a.pkl", pickle.dumps(pd.DataFrame({"input_tokens": [1, 2]}))),
        "row 0: int, expected a list",
    ),
}


@pytest.mark.parametrize(("write", "message"), BAD.values(), ids=BAD)
def test_bad_file_is_one_clear_line(write, message, tmp_path):
    path = write(tmp_path)
    with pytest.raises(DatasetError) as caught:
        load(path)
    text = str(caught.value)
    assert message in text and str(path) in text and "\n" not in text
    assert len(text) < 300 + len(str(path)) and caught.value.exit_code == EXIT_USAGE


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
    path = parquet(tmp_path / "a.parquet", PROMPTS)
    subprocess.run([sys.executable, "-c", EVERY_DAMAGE, str(path)], check=True, cwd=ROOT)


def test_unreadable_file(tmp_path, monkeypatch):
    """Permissions do not bind root, so the system's answer is put in its mouth."""
    path = parquet(tmp_path / "a.parquet", PROMPTS)

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
    samples = load(parquet(tmp_path / "a.parquet", [prompt for prompt, _ in PROMPT_EFFORTS]))
    assert prompt_efforts(samples, EFFORTS) == tuple(effort for _, effort in PROMPT_EFFORTS)
    assert prompt_efforts(samples.head(3), EFFORTS) == ("low", "high", "medium")


def test_efforts_of_a_prompt_shorter_than_the_marker(tmp_path):
    assert prompt_efforts(load(parquet(tmp_path / "a.parquet", [[7]])), EFFORTS) == (None,)


@pytest.fixture(scope="module")
def performance_file(tmp_path_factory):
    """As many rows as the official performance file, 1500 tokens each."""
    random = np.random.default_rng(0)
    lengths = random.integers(750, 2250, 6396)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = random.integers(0, 199998, offsets[-1])
    for start in offsets[:-1]:
        ids[start : start + 8] = [*HEAD, *EFFORTS["low"], END]
    column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ids))
    path = tmp_path_factory.mktemp("large") / "perf.parquet"
    pq.write_table(pa.table({"input_tokens": column}), path)
    return path, ids, offsets


def test_a_full_dataset(performance_file):
    path, ids, offsets = performance_file
    samples = load(path)
    efforts = prompt_efforts(samples, EFFORTS)
    assert (samples.ids == ids).all() and (samples.offsets == offsets).all() and set(efforts) == {"low"}
