"""Arrow arrays through their buffers, beside pyarrow's own conversions."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.arrow import arrow_numbers, arrow_texts, arrow_values, numpy_numbers
from tests.runs import PERFORMANCE, ROOT

NUMBERS = ("u1", "i4", "i8", "u8", "f4", "f8", "?")
TEXTS = [["a", None, "", "é\u20ac"], [None, None], ["", ""], []]
SLICES = [slice(None), slice(1, None), slice(3, -2), slice(9, 20)]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("rows", [0, 1, 8, 21])
def test_numbers(dtype, rows):
    field = (np.arange(rows * 2).reshape(rows, 2) % 3).astype(dtype)[:, 0]  # with gaps, as a record's
    for missing in (None, *(np.arange(rows) % step == 0 for step in (1, 3))):
        array = arrow_numbers(field, missing)
        array.validate(full=True)
        assert array.equals(pa.array(field, mask=missing))
        null = field.dtype.type(1)
        for part in SLICES:
            expected = array[part].fill_null(null.item()).to_numpy(zero_copy_only=False)
            np.testing.assert_array_equal(numpy_numbers(array[part], null=1), expected, strict=True)


@pytest.mark.parametrize("texts", TEXTS)
def test_texts(texts):
    array = arrow_texts(texts)
    array.validate(full=True)
    assert array.equals(pa.array(texts, pa.string()))


@pytest.mark.parametrize(
    "values", [["a", None], [None, 2, 1 << 40], [1.5, None, 2.0], [True, None, False], [3, 0.5], [2.0], [0]]
)
def test_values_of_python(values):
    array = arrow_values(values)
    array.validate(full=True)
    assert array.equals(pa.array(values))
    assert arrow_values([None, None]).equals(pa.array([None, None], pa.float64()))


@pytest.mark.parametrize("array", [pa.array([1, None]), pa.array(["1"]), pa.array([1], pa.date32())])
def test_what_is_no_number_is_an_error(array):
    with pytest.raises(ValueError):
        numpy_numbers(array)


def test_a_run_loads_no_package_that_it_does_not_need(tmp_path):
    """They are installed here, and pyarrow loads pandas where it can."""
    program = """
import sys
from pathlib import Path
import numpy as np
from harness.dataset import samples, tokenizer
from harness.dataset.table import open_table
from harness.dataset.token_columns import token_rows
from harness.record.journal import QUERY_ROW
from harness.record.requests_table import requests_table, write_requests
from harness.record.server_metrics import MetricsWriter
from harness.analysis.server_load import read_samples

for path in map(Path, sys.argv[1:]):
    token_rows(open_table(path))
write_requests(Path("requests.parquet"), requests_table(np.zeros(3, QUERY_ROW), ["http://a:1"], {0: "lost"}))
with open("metrics.parquet", "wb") as file:
    writer = MetricsWriter(file, ["http://a:1"])
    writer.add(1, 0, b"sglang:num_queue_reqs 3")
    writer.close()
assert read_samples(Path("metrics.parquet")).servers == 1
print({"pandas", "pyarrow.compute", "bpe_openai", "tokenizers"} & sys.modules.keys())
"""
    pd.DataFrame({"input_tokens": [[1, 2], [3]]}).to_pickle(tmp_path / "dataset.pkl")
    assert printed(program, tmp_path, PERFORMANCE, "dataset.pkl") == "set()\n"


@pytest.mark.engine
def test_a_ladder_loads_no_pandas(tmp_path):
    program = """
import sys
from pathlib import Path
from harness.peak.ladder.ladder_files import write_ladder
from tests.harness.peak.ladder.made import ladder

write_ladder(Path(), ladder(), ())
print("pandas" in sys.modules)
"""
    assert printed(program, tmp_path) == "False\n"
    rates = pq.read_table(tmp_path / "ladder.parquet")["tokens_per_s"]
    assert rates.to_pylist() == [200, 380, 700, 1150, 1600, 1610]


def printed(program, folder, *words):
    """By a program that has to say nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout
