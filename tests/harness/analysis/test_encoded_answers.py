"""What a run of text answers says of its ids, and when their number makes it INVALID."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from harness.analysis.client_overhead import ClientReadings, client_load
from harness.analysis.encoded_answers import encoded_with, text_reasons, text_warnings, with_counts
from harness.grading.decoding.text_tokenizer import TextTokenizer
from harness.record.journal import (
    COMPLETE,
    COUNT_ROW,
    COUNTS_FILE,
    FIRST_TOKEN,
    LOADGEN_CALL_ROW,
    QUERY_ROW,
    encode_count,
    read_counts,
)
from harness.record.requests_table import ByQuery, requests_table, write_requests

CALLS = np.array([(1, FIRST_TOKEN, 5, 6), (1, COMPLETE, 10, 2_000_010)], LOADGEN_CALL_ROW)


def encoded(*counts, calls=CALLS):
    """A run of answers of (ids, counted)."""
    rows = np.array([(number, *pair) for number, pair in enumerate(counts)], COUNT_ROW)
    return with_counts(encoded_with(TextTokenizer("o200k_harmony", "5" * 64)), rows, calls)


def test_figures_of_a_run():
    found = encoded((100, 101), (50, 50), (40, 40), (31, 30))
    assert (found.answers, found.ids, found.counted, found.equal) == (4, 221, 221, 2)
    assert (found.fewest, found.most) == (-1, 1)
    assert found.delay is not None
    assert found.delay.mean == 2_000_000  # not the first token, which is reported at once
    (warning,) = text_warnings(found)
    assert "o200k_harmony" in warning
    assert "2 of 4 answers differ, by -1 to +1" in warning
    assert "2.000 ms" in warning


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([(50, 50), (60, 60)], ": 110 ids, the servers counted 110 (+0.00%), in each answer as many; "),
        ([(100, 80), (99, 119), (41, 40)], ": 240 ids, the servers counted 239 (+0.42%); 3 of 3 answers"),
        ([], "; "),
    ],
)
def test_the_sums_of_a_run_are_in_its_warning(counts, said):
    found = encoded(*counts)
    differences = [ids - counted for ids, counted in counts]
    assert (found.fewest, found.most) == (min(differences, default=0), max(differences, default=0))
    (warning,) = text_warnings(found)
    assert warning.partition("o200k_harmony")[2].startswith(said)


def test_a_run_without_text_says_nothing():
    assert encoded_with(None) is None
    assert not any(text_warnings(None))
    assert not list(text_reasons(None))


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ([(1000, 1001)] * 50, ""),  # the end token
        ([(290, 300)] * 50, ""),  # a server that strips channels
        ([(14, 31), (12, 22)], ""),  # short answers of gpt-oss with a call of a tool
        ([(1030, 1000)] * 50, ""),  # random weights
        ([(9, 8)] * 50, ""),
        ([(700, 1000)] * 50, "text of answers is missing"),
        ([(1080, 1000)] * 50, "more tokens than the servers"),
        ([(1000, 1000)] * 99 + [(400, 1000)], ""),  # each answer is judged by its encoder
        ([], ""),
    ],
)
def test_differences_that_make_a_run_invalid(counts, reason):
    found = list(text_reasons(encoded(*counts)))
    assert bool(found) == bool(reason)
    assert all(reason in one for one in found)


def test_counts_of_a_journal_that_was_cut_short(tmp_path):
    rows = encode_count(7, 10, 11) + encode_count(8, 20, 20)
    (tmp_path / COUNTS_FILE.format("worker0")).write_bytes(rows[:-3])
    (tmp_path / COUNTS_FILE.format("worker1")).write_bytes(rows)
    assert read_counts(tmp_path).tolist() == [(7, 10, 11), (7, 10, 11), (8, 20, 20)]


def test_requests_name_the_servers_counts(tmp_path):
    rows = np.zeros(3, QUERY_ROW)
    rows["query_id"], rows["osl"] = [1, 2, 3], [10, 20, 30]
    counts = np.array([(3, 30, 31), (1, 10, 10)], COUNT_ROW)
    path = tmp_path / "requests.parquet"
    joined = [ByQuery(counts["query_id"], {"counted": counts["counted"]})]
    write_requests(path, requests_table(rows, ["u"], joined=joined, tokenizer="m/tokenizer.json"))
    table = pq.read_table(path)
    assert table["counted"].to_pylist() == [10, None, 31]
    assert table.schema.metadata[b"answers"] == b"text, encoded again with m/tokenizer.json"
    plain = requests_table(rows, ["u"])
    assert "counted" not in plain.column_names
    assert plain.schema.metadata[b"answers"] == b"token ids"


def test_an_encoder_is_a_process_of_its_own_in_the_clients_load():
    second = 10**9
    cpu = np.array([[at * second, *(at * part for part in (1, 2, second))] for at in range(4)])
    found = client_load(ClientReadings(cpu, encoders=1), np.empty(0, LOADGEN_CALL_ROW), 0, None)
    assert list(found.cores) == ["LoadGen", "worker 0", "encoder 0"]
    assert [one.reason for one in found.bottlenecks] == ["encoder 0 used 100% of a core"]
