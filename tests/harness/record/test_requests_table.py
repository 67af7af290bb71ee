"""requests.parquet, read back by pandas."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from harness.arrow import CLOCK
from harness.record.journal import QUERY_ROW
from harness.record.outcome import FailureKind
from harness.record.requests_table import ByQuery, requests_table, write_requests
from tests.records import rows_with
from tests.runs import ROOT

URLS = ["http://a:1", "http://b:2"]


@pytest.fixture
def rows():
    return rows_with(
        4,
        query_id=[11, 2**63 + 5, 13, 12],
        issued_ns=[100, 300, 200, 200],
        replica=[0, 1, 1, 2],
        first_token_ns=[150, 0, 260, 270],
        osl=[4, 0, 5, 6],
        finish=[1, 0, 2, 3],
        failure=[0, FailureKind.HTTP_STATUS, 0, 99],
        resumed=[0, 0, 1, 0],
    )


def read_back(tmp_path, *arguments, **named):
    path = tmp_path / "requests.parquet"
    write_requests(path, requests_table(*arguments, **named))
    assert [file.name for file in tmp_path.iterdir()] == ["requests.parquet"]
    return pd.read_parquet(path)


def test_rows_in_order_of_issue(tmp_path, rows):
    frame = read_back(tmp_path, rows, URLS, {2**63 + 5: "HTTP 500: boom"})
    assert frame.query_id.tolist() == [11, 12, 13, 2**63 + 5]
    assert frame.replica.astype(object).tolist() == ["http://a:1", "unknown_2", "http://b:2", "http://b:2"]
    assert frame.finish_reason.astype(object).fillna("-").tolist() == ["stop", "other", "length", "-"]
    assert frame.failure.astype(object).fillna("-").tolist() == ["-", "unknown_99", "-", "http_status"]
    assert frame.failure_detail.fillna("-").tolist() == ["-", "-", "-", "HTTP 500: boom"]
    assert frame.resumed.tolist() == [False, False, True, False]
    assert frame.first_token_ns.fillna(-1).tolist() == [150, 270, 260, -1]  # null: it never came


def test_reported_times_are_joined_by_query(tmp_path, rows):
    ids, first, done = np.array([[2**63 + 5, 0, 909], [99, 1, 1], [11, 155, 199]], np.uint64).T
    reported = ByQuery(ids, {"reported_first_ns": first, "reported_done_ns": done})
    frame = read_back(tmp_path, rows, URLS, joined=[reported])
    assert frame.reported_first_ns.fillna(-1).tolist() == [155, -1, -1, -1]
    assert frame.reported_done_ns.fillna(-1).tolist() == [199, -1, -1, 909]


def test_no_rows_and_no_reports(tmp_path):
    nothing = [ByQuery(np.zeros(0, np.uint64), {"reported_first_ns": np.zeros(0, np.int64)})]
    assert len(read_back(tmp_path, np.zeros(0, QUERY_ROW), URLS, joined=nothing)) == 0
    one = np.zeros(1, QUERY_ROW)
    assert read_back(tmp_path, one, URLS, joined=nothing).reported_first_ns.isna().all()


def test_every_column_says_its_unit_and_meaning(tmp_path, rows):
    """In the file, and in the table of the documents."""
    further = ("reported_first_ns", "reported_done_ns", "visible_ns", "visible_tokens", "counted")
    joined = [ByQuery(np.zeros(1, np.uint64), {name: np.zeros(1, np.int64) for name in further})]
    read_back(tmp_path, rows, URLS, joined=joined)
    schema = pq.read_schema(tmp_path / "requests.parquet")
    assert all(list(field.metadata) == [b"unit", b"description"] for field in schema)
    assert schema.metadata[b"clock"] == CLOCK.encode()
    described = {field.name: [text.decode() for text in field.metadata.values()] for field in schema}
    page = (ROOT / "docs/reference/requests_parquet.md").read_text()
    documented = [line for line in page.splitlines() if line.startswith("| `")]
    assert documented == [f"| `{name}` | {unit} | {text} |" for name, (unit, text) in described.items()]
    assert all(unit.startswith("ns,") == name.endswith("_ns") for name, (unit, _) in described.items())
