"""Datasets with further columns: every format in, parquet and pandas pickles out."""

import json
import pickletools

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.dataset.extended_table import NewColumn, check_suffix, unreadable_columns, write_extended
from harness.dataset.table import open_table
from harness.errors import ConfigError
from harness.rows.eval_result import column_warnings

NEW = [
    NewColumn("text", "string", lambda row: None if row == 1 else f"<{row}>"),
    NewColumn("ids", "ids", lambda row: None if row == 1 else np.array([row, 200_000], np.int32)),
    NewColumn("count", "int32", lambda row: row),
]
WRITTEN = {"text": ["<0>", None, "<2>"], "ids": [[0, 200_000], None, [2, 200_000]], "count": [0, 1, 2]}

# Cells in a dataset, and those in parquet where they differ: a column of it has one type.
CELLS = [
    (["a", None, "ü\U0001f600"], None),
    ([1, None, 1 << 62], None),
    ([[1, 2], [], [3]], None),
    ([{"a": [1]}, {"a": []}, None], None),
    ([1, "1/2", 2.5], ["1", "1/2", "2.5"]),
    ([7, 3.5, None], ["7", "3.5", None]),
    ([True, None, False], None),
    ([{}, None, {}], ["{}", None, "{}"]),
    ([[{"a": {}}], [], None], ["[{'a': {}}]", "[]", None]),
]


@pytest.mark.parametrize("suffix", ["parquet", "pkl"])
@pytest.mark.parametrize("source", ["pickle", "json", "dict"])
@pytest.mark.parametrize(("cells", "in_parquet"), CELLS, ids=lambda value: str(value)[:20])
def test_cells_come_back(cells, in_parquet, source, suffix, tmp_path):
    rows, path = [[5], *[[6]] * 3], tmp_path / f"in.{'json' if source == 'json' else 'pkl'}"
    padded = [cells[0], *cells]
    if source == "pickle":
        pd.DataFrame({"tok_input": rows, "cell": pd.Series(padded, dtype=object)}).to_pickle(path)
    elif source == "dict":
        pd.to_pickle({"tok_input": rows, "cell": padded}, path)
    else:
        both = zip(rows, padded, strict=True)
        path.write_text(json.dumps([{"tok_input": ids, "cell": cell} for ids, cell in both]))
    output = tmp_path / f"out.{suffix}"
    write_extended(output, open_table(path), range(1, 4), NEW)
    expected = in_parquet if suffix == "parquet" and in_parquet else cells
    table = open_table(output)
    assert list(table.names) == ["tok_input", "cell", "text", "ids", "count"]
    assert table.column("cell") == expected
    assert {name: table.column(name) for name in WRITTEN} == WRITTEN
    if suffix == "pkl":
        frame = pd.read_pickle(output)
        assert frame["ids"].tolist() == WRITTEN["ids"]
        assert (len(frame), frame["count"].dtype) == (3, "int64")
        codes = pickletools.genops(output.read_bytes())
        assert [argument for code, argument, _ in codes if code.name == "GLOBAL"] == ["pandas DataFrame"]


def test_arrays_in_the_cells_of_a_pickle_become_lists(tmp_path):
    path, output = tmp_path / "in.pkl", tmp_path / "out.pkl"
    cells = {"tok_input": [np.array([1, 2]), np.array([3])], "x": [np.float64(0.5), np.nan]}
    pd.DataFrame(cells).to_pickle(path)
    write_extended(output, open_table(path), range(2), [])
    frame = pd.read_pickle(output)
    assert frame["tok_input"].tolist() == [[1, 2], [3]]
    np.testing.assert_array_equal(frame["x"], [0.5, np.nan])


@pytest.mark.parametrize("suffix", ["parquet", "pkl"])
@pytest.mark.parametrize("source", ["in.json", "in.pkl"])
def test_a_column_that_cannot_be_read_is_left_out_and_named(source, suffix, tmp_path):
    path, output = tmp_path / source, tmp_path / f"out.{suffix}"
    if source == "in.json":
        path.write_text('[{"tok_input": [1], "odd": 1, "failure": ""}, {"tok_input": [2], "failure": ""}]')
    else:
        pd.DataFrame({"tok_input": [[1], [2]], "odd": [1j, 2j], "failure": ""}).to_pickle(path)
    assert list(unreadable_columns(open_table(path))) == ["odd"]
    earlier, left_out = column_warnings(open_table(path))
    assert earlier == f"{path}: its columns failure are those of an earlier run and are replaced"
    assert left_out.startswith("column odd is left out of the file: ")
    new = NewColumn("failure", "string", lambda row: None)
    write_extended(output, open_table(path), range(2), [*NEW, new])
    assert list(open_table(output).names) == ["tok_input", "text", "ids", "count", "failure"]


def test_parquet_keeps_its_types_over_many_row_groups(tmp_path):
    path, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    tokens = pa.array([[row] for row in range(100)], pa.list_(pa.uint16()))
    source = pa.table({"input_tokens": tokens, "when": pa.array(range(100), pa.timestamp("s"))})
    pq.write_table(source.append_column("text", [["replaced"] * 100]), path, row_group_size=7)
    write_extended(output, open_table(path), range(5, 95), NEW, {"key": "value"})
    written = pq.read_table(output)
    kept = written.drop_columns(["text", "ids", "count"])
    assert kept.equals(pq.read_table(path).drop_columns(["text"]).slice(5, 90), check_metadata=False)
    assert written["text"].to_pylist()[:3] == WRITTEN["text"]
    assert written.schema.metadata[b"key"] == b"value"


def test_nothing_is_left_where_writing_fails(tmp_path):
    path, output = tmp_path / "in.json", tmp_path / "out.parquet"
    path.write_text('[{"tok_input": [1]}]')

    def fail(row):
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_extended(output, open_table(path), range(1), [NewColumn("x", "string", fail)])
    assert [entry.name for entry in tmp_path.iterdir()] == ["in.json"]


@pytest.mark.parametrize(("name", "found"), [("out", "missing"), ("a.csv", ".csv"), ("a.pkl.gz", ".gz")])
def test_other_suffixes_are_refused(name, found, tmp_path):
    with pytest.raises(ConfigError, match=rf"--output-file .*: suffix '{found}', expected \.parquet, or "):
        check_suffix(tmp_path / name, "--output-file")
