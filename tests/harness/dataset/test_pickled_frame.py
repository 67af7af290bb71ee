"""Pickled tables: what a pickle asks for is never run, damage is one error, pandas' layouts are read."""

import copyreg
import io
import os
import pickle
import random
import struct
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.dataset.pickled_frame import load_frame
from harness.errors import DatasetError

OLDER = Path(__file__).parent / "pickles"


def plain(column):
    """Cells as python values."""
    cells = column.tolist() if isinstance(column, np.ndarray) else column
    return [cell.tolist() if isinstance(cell, np.ndarray) else cell for cell in cells]


def named(module, name, *operands):
    """A pickle that calls module.name with strings; written opcode by opcode, so nothing needs to exist."""
    strings = b"".join(b"X" + struct.pack("<I", len(text)) + text for text in map(str.encode, operands))
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + b"(" + strings + b"tR."


HOSTILE_CALLS = [
    ("os", "system", "touch {canary}"),
    ("posix", "system", "touch {canary}"),
    ("builtins", "eval", "open({canary!r}, 'w')"),
    ("builtins", "open", "{canary}", "w"),
    ("builtins", "__import__", "antigravity"),
    ("builtins", "getattr", "x", "__class__"),
    ("pickle", "loads", "x"),
    ("numpy", "load", "{canary}"),
    ("numpy.core.multiarray", "fromfile", "{canary}"),
    ("numpy._core.multiarray", "arange", "9"),
    ("pandas", "read_pickle", "{canary}"),
    ("pandas.core.frame", "DataFrame.to_csv", "x", "{canary}"),
    ("pandas.core.internals.managers", "os.system", "touch {canary}"),
    ("pyarrow.lib", "memory_map", "{canary}"),
    ("copyreg", "_reconstructor", "x"),
    ("harness.dataset.pickled_frame", "load_frame", "{canary}"),
    ("harness.dataset.pickle_records", "Record", "x"),
    ("numpy", "ndarray.tofile", "{canary}"),
    ("builtins", "slice.__class__", "x"),
]


def written(folder, content):
    (folder / "a.pkl").write_bytes(content)
    return folder / "a.pkl"


@pytest.mark.parametrize("call", HOSTILE_CALLS, ids=lambda call: ".".join(call[:2]))
def test_hostile_call_is_an_error_without_effect(call, tmp_path):
    """The first four do work where nothing guards; otherwise the table would prove nothing."""
    canary = tmp_path / "canary"
    module, name, *operands = call
    content = named(module, name, *(operand.format(canary=str(canary)) for operand in operands))
    with pytest.raises(DatasetError, match="does not need; nothing was run") as caught:
        load_frame(written(tmp_path, content))
    assert f"{module}.{name}" in str(caught.value) and "\n" not in str(caught.value)
    assert not canary.exists()
    if call in HOSTILE_CALLS[:4]:
        pickle.loads(content)
        assert canary.exists()


FRAME = pd.DataFrame({"input_tokens": [[1, 2], [3]], "ground_truth": ["A", "B"]})


def test_hostile_call_inside_a_true_frame(tmp_path):
    canary = tmp_path / "canary"

    class Call:
        def __reduce__(self):
            return os.system, (f"touch {canary}",)

    with pytest.raises(DatasetError, match="system"):
        load_frame(written(tmp_path, pickle.dumps(FRAME.assign(more=[Call(), 1]))))
    assert not canary.exists()


def forged(*opcodes):
    return b"\x80\x04" + b"".join(opcodes) + b"."


DTYPE = b"cnumpy\ndtype\n"
WELL_FORMED_BUT_WRONG = {
    "an attribute set on a stand-in class": forged(b"cnumpy\ndtype\n", b"}", b"\x8c\x05hello", b"K\x01sb"),
    "slot state on a stand-in class": forged(b"cpandas\nDataFrame\n", b"N}\x8c\x09arguments", b"K\x01s\x86b"),
    "slot state on a builtin": forged(b"cbuiltins\nslice\n", b"N}\x8c\x05start", b"K\x01s\x86b"),
    "a persistent id": forged(b"\x8c\x01x", b"Q"),
    "an extension code": forged(b"\x82\x01"),
    "keyword arguments": forged(b"cpandas\nDataFrame\n", b")}\x8c\x04data", b"K\x01s\x92"),
    "a dtype alone": forged(DTYPE, b"(\x8c\x02O8", b"\x89\x88tR"),
    "a list": pickle.dumps([1, 2, 3]),
    "a dict of dicts": pickle.dumps({"input_tokens": {"a": 1}}),
    "an empty dict": pickle.dumps({}),
    "columns of other lengths": pickle.dumps({"input_tokens": [[1], [2]], "n": [1]}),
    "a frame without state": forged(b"cpandas\nDataFrame\n", b")\x81"),
    "a frame of nothing": forged(b"cpandas\nDataFrame\n", b")\x81", b"}\x8c\x04_mgr", b"Nsb"),
    "nothing on the stack": forged(b""),
}


@pytest.mark.parametrize("content", WELL_FORMED_BUT_WRONG.values(), ids=WELL_FORMED_BUT_WRONG)
def test_pickle_that_is_no_table(content, tmp_path):
    file = written(tmp_path, content)
    with pytest.raises(DatasetError) as caught:
        load_frame(file)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def dumped(value, forge):
    """Pickled with another ``__reduce__``, to forge what numpy and pyarrow would believe."""
    file = io.BytesIO()
    pickler = type("Forged", (pickle.Pickler,), {"reducer_override": staticmethod(forge)})
    pickler(file, protocol=4).dump(value)
    return file.getvalue()


FORGED_ARRAYS = {
    "pointers from bytes": lambda s: (s[0], s[1], s[2], s[3], b"\x41" * 16),
    "more cells than there are": lambda s: (s[0], (1, 10**6), s[2], s[3], s[4]),
    "a huge shape": lambda s: (s[0], (2**40, 2**40), s[2], s[3], s[4]),
    "a nested shape": lambda s: (s[0], ((1, 2), 1), s[2], s[3], s[4]),
    "a structured dtype": lambda s: (s[0], s[1], np.dtype([("a", "O")]), s[3], b"\x00" * 16),
}


@pytest.mark.parametrize("change", FORGED_ARRAYS.values(), ids=FORGED_ARRAYS)
def test_forged_array_is_an_error(change, tmp_path):
    def forge(value):
        """Change the state (version, shape, dtype, order, data) of every array of objects."""
        if isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 2:
            function, arguments, state = value.__reduce__()
            return function, arguments, change(state)
        return NotImplemented

    file = written(tmp_path, dumped(FRAME[["input_tokens"]], forge))
    with pytest.raises(DatasetError):
        load_frame(file).column("input_tokens")


def test_forged_arrow_offsets_are_an_error(tmp_path):
    content = pickle.dumps(FRAME[["ground_truth"]])
    true_offsets = struct.pack("<3q", 0, 1, 2)
    assert true_offsets in content
    file = written(tmp_path, content.replace(true_offsets, struct.pack("<3q", 0, 1, 2**40)))
    with pytest.raises(DatasetError, match="column ground_truth of the pickle is damaged"):
        load_frame(file).column("ground_truth")


MEMORY_BOMBS = {
    "a memo of gigabytes, which this machine has": b"\x80\x02Nr" + struct.pack("<I", 2**28) + b".",
    "a byte string of a terabyte": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"x.",
    "a text of a terabyte": b"\x80\x04\x8d" + struct.pack("<Q", 2**40) + b"x.",
    "a frame of a terabyte": b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"N.",
    "a long of two gigabytes": b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"x.",
}


@pytest.mark.skipif(sys.platform != "linux", reason="address space is bounded on Linux only")
@pytest.mark.parametrize("content", MEMORY_BOMBS.values(), ids=MEMORY_BOMBS)
def test_memory_bomb_is_an_error(content, tmp_path):
    with pytest.raises(DatasetError, match="not a readable pickle"):
        load_frame(written(tmp_path, content))


def test_row_range_as_column_labels_is_bounded(tmp_path):
    frame = FRAME.copy()
    frame.columns = pd.RangeIndex(2)

    def forge(value):
        if isinstance(value, pd.RangeIndex) and value.stop == 2 and value is frame.columns:
            function, (kind, description) = value.__reduce__()[:2]
            return function, (kind, {**description, "stop": 10**12})
        return NotImplemented

    with pytest.raises(DatasetError, match="1000000000000 columns"):
        load_frame(written(tmp_path, dumped(frame, forge)))


@pytest.mark.parametrize("seed", range(5))
def test_damaged_pickle_is_one_clear_error_or_a_table(seed, tmp_path):
    """Flipped and missing bytes may still give a table; they never give another exception."""
    source = random.Random(seed)
    for original in sorted(OLDER.glob("*.pkl")):
        content = bytearray(original.read_bytes())
        for _ in range(15):
            damaged = bytearray(content)
            for _ in range(source.randrange(1, 4)):
                damaged[source.randrange(len(damaged))] = source.randrange(256)
            kept = source.choice([len(damaged), source.randrange(len(damaged))])
            try:
                frame = load_frame(written(tmp_path, damaged[:kept]))
                for name in frame.names:
                    frame.column(name)
            except DatasetError as error:
                assert "\n" not in str(error)


@pytest.mark.parametrize("file", sorted(OLDER.glob("*.pkl")), ids=lambda file: file.stem)
def test_pickle_of_older_pandas(file):
    """Files made by pandas 1.5.3 with numpy 1.26 and by pandas 2.2.3 with numpy 2.0."""
    frame = load_frame(file)
    assert frame.names == ("tok_input", "as_arrays", "as_scalars", "dataset", "count", "score", "text")
    assert plain(frame.column("tok_input")) == [[200006, 17360], [1, 2, 3]]
    assert plain(frame.column("as_arrays")) == [[5, 6], [7]]
    assert plain(frame.column("dataset")) == ["aime25", "gpqa_diamond"]
    assert plain(frame.column("count")) == [2, 3]
    assert plain(frame.column("score"))[0] == 0.5
    assert plain(frame.column("text")) == ["ç", None]


FRAMES = {
    "lists": FRAME,
    "arrays": pd.DataFrame({"input_tokens": [np.array([1, 2]), np.array([3], np.uint16)]}),
    "big endian": pd.DataFrame({"input_tokens": [np.array([1, 2], ">i4"), np.array([3], ">i8")]}),
    "fortran order": pd.DataFrame(np.asfortranarray([[1, 2], [3, 4], [5, 6]]), columns=["a", "b"]),
    "object strings": pd.DataFrame({"dataset": pd.Series(["x", None], dtype=object)}),
    "python strings": pd.DataFrame({"dataset": pd.array(["x", None], dtype="string[python]")}),
    "arrow strings": pd.DataFrame({"dataset": pd.array(["ä", None], dtype="string[pyarrow]")}),
    "several blocks": pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5], "c": [True, False], "d": [3, 4]}),
    "a slice": pd.DataFrame({"input_tokens": [[1], [2, 3], [4]], "n": [1, 2, 1]}).iloc[1:],
    "an index of names": FRAME.set_index("ground_truth"),
    "no rows": FRAME.iloc[:0],
}


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_frame_is_read_as_pandas_wrote_it(frame, protocol, tmp_path):
    frame.to_pickle(tmp_path / "frame.pkl", protocol=protocol)
    loaded = load_frame(tmp_path / "frame.pkl")
    assert loaded.names == tuple(frame.columns)
    for name in loaded.names:
        true = [None if cell is pd.NA or cell is None else cell for cell in frame[name]]
        assert plain(loaded.column(name)) == plain(true)


def test_layout_of_pandas_before_1_3(tmp_path):
    """pandas itself still reads this layout, so it tells whether the file is a true one."""
    frame = pd.DataFrame({"input_tokens": pd.Series([[1, 2], [3]], dtype=object), "n": [2, 1]})
    frame.columns = frame.columns.astype(object)

    def forge(value):
        if type(value) is not type(frame._mgr):
            return NotImplemented
        blocks = [{"values": block.values, "mgr_locs": block.mgr_locs.indexer} for block in value.blocks]
        state = (value.axes, [], [], {"0.14.1": {"axes": value.axes, "blocks": blocks}})
        return copyreg.__newobj__, (type(value),), state

    file = written(tmp_path, dumped(frame, forge))
    pd.testing.assert_frame_equal(pd.read_pickle(file), frame)
    loaded = load_frame(file)
    assert loaded.names == ("input_tokens", "n")
    assert [plain(loaded.column(name)) for name in loaded.names] == [[[1, 2], [3]], [2, 1]]


def test_dict_of_lists(tmp_path):
    frame = load_frame(written(tmp_path, pickle.dumps({"tok_input": [[1], [2]], "dataset": ["a", "b"]})))
    assert frame.names == ("tok_input", "dataset") and frame.column("tok_input") == [[1], [2]]
