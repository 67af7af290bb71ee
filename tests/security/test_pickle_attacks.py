"""Forged pickles that aim below python: each runs in a process of its own, since the aim is to crash it."""

import itertools
import struct
import subprocess
import sys

import pytest

from tests.runs import ROOT

READ = """
import os, sys
from pathlib import Path
from harness.errors import DatasetError
from harness.dataset.pickled_frame import load_frame

def read(path):
    try:
        frame = load_frame(Path(path))
        for name in frame.names:
            frame.column(name)
    except DatasetError as error:
        print("refused", error)

for path in sys.stdin.read().splitlines():
    if not os.fork():
        read(path)
        sys.stdout.flush()
        os._exit(0)
    print("end", os.wait()[1], flush=True)
"""
OFFSETS = struct.pack("<3i", 0, 1, 2)


def integer(value):
    data = value.to_bytes(16, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def raw(value):
    return b"N" if value is None else b"B" + struct.pack("<I", len(value)) + value


def arrow_strings(length, nulls, offset, buffers, alias="string"):
    """A pickled dict of one column; the column is a pandas string array around an arrow array."""
    kind = b"cpyarrow.lib\ntype_for_alias\n" + text(alias) + b"\x85R"
    parts = b"(" + kind + integer(length) + integer(nulls) + integer(offset)
    parts += b"](" + b"".join(map(raw, buffers)) + b"e" + b"t"
    array = b"cpyarrow.lib\n_restore_array\n" + parts + b"\x85R"
    strings = b"cpandas.arrays\nArrowStringArray\n)\x81}" + text("_pa_array") + array + b"sb"
    return frame(strings)


def frame(values):
    """A DataFrame whose one block holds ``values``."""
    labels = b"cpandas.core.indexes.base\n_new_Index\ncpandas\nRangeIndex\n}("
    labels += text("start") + b"K\x00" + text("stop") + b"K\x01" + text("step") + b"K\x01u\x86R"
    block = b"cpandas._libs.internals\n_unpickle_block\n(" + values
    block += b"cbuiltins\nslice\nK\x00K\x01K\x01\x87RK\x01tR"
    manager = (
        b"cpandas.core.internals.managers\nBlockManager\n(" + block + b"\x85](" + labels + labels + b"etR"
    )
    return b"\x80\x04cpandas\nDataFrame\n)\x81}" + text("_mgr") + manager + b"sb."


def nested(opening, closing, depth=200_000):
    return b"\x80\x04" + opening * depth + b"N" + closing * depth + b"."


ATTACKS = {
    "an arrow array before its buffers": arrow_strings(2, 0, -(2**33), [None, OFFSETS, b"ab"]),
    "an arrow array far before its buffers": arrow_strings(2, 0, -(2**60), [None, OFFSETS, b"ab"]),
    "an arrow array as long as it is before": arrow_strings(2**40, 0, -(2**40), [None, OFFSETS, b"ab"]),
    "nulls before the buffers": arrow_strings(2, 1, -(2**33), [b"\3", OFFSETS, b"ab"]),
    "an arrow array of negative length": arrow_strings(-1, 0, 0, [None, OFFSETS, b"ab"]),
    "an arrow array longer than any memory": arrow_strings(2**62, 0, 2**62, [None, OFFSETS, b"ab"]),
    "a length beyond 64 bits": arrow_strings(2**70, 0, 0, [None, OFFSETS, b"ab"]),
    "arrow offsets that go back": arrow_strings(2, 0, 0, [None, struct.pack("<3i", 0, -1, 2), b"ab"]),
    "arrow strings without buffers": arrow_strings(2, 0, 0, [None, None, None]),
    "too few arrow buffers": arrow_strings(2, 0, 0, []),
    "an arrow extension type": arrow_strings(1, 0, 0, [None, b"12345678"], alias="int64"),
    "tuples in tuples": nested(b"", b"\x85"),
    "records in records": b"\x80\x04" + b"cbuiltins\nbytes\n" * 50_000 + b"N" + b"\x85R" * 50_000 + b".",
    "bytes around bytes around bytes": frame(
        b"cbuiltins\nbytes\n" * 50_000 + b"N" + b"\x85R" * 50_000
    ),
    "a frame around itself": b"\x80\x04cpandas\nDataFrame\n)\x81q\x00}" + text("_mgr") + b"h\x00sb.",
}  # fmt: skip


def readings(folder, contents):
    """What a process says that reads each, and how it ends."""
    paths = [folder / f"{number}.pkl" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    words, asked = [sys.executable, "-c", READ], "\n".join(map(str, paths))
    done = subprocess.run(words, input=asked, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.stderr == "", done.stderr[-500:]
    said = done.stdout.split("end ")
    return [(before.partition("\n")[2] if number else before, int(after.split("\n")[0]))
            for number, (before, after) in enumerate(itertools.pairwise(said))]  # fmt: skip


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    contents = {**ATTACKS, "honest": arrow_strings(2, 0, 0, [None, OFFSETS, b"ab"])}
    return dict(zip(contents, readings(tmp_path_factory.mktemp("attacks"), contents.values()), strict=True))


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_refused_in_one_line(name, read):
    said, status = read[name]
    assert status == 0
    assert said.startswith("refused") and said.count("\n") == 1


def test_the_same_pickle_without_the_forgery_is_read(read):
    assert read["honest"] == ("", 0)
