"""What a ladder leaves on disk."""

import pyarrow.parquet as pq

from harness.files import JOURNAL_DIR, REQUESTS
from harness.peak.ladder.ladder_files import write_ladder
from harness.record.outcome import Failure, FailureKind
from sut.worker.journal_writer import JournalWriter
from tests.harness.peak.ladder.made import ladder


def test_a_ladder_that_ended_before_its_first_step_names_the_failures(tmp_path):
    """As where no request of the warm-up is answered."""
    journal = tmp_path / JOURNAL_DIR
    journal.mkdir()
    writer = JournalWriter(journal, "worker0", 0)
    writer.add(0, 0, 0, (1, 2, 3, 0, 4), 20, 0, Failure(FailureKind.HTTP_STATUS, "HTTP 500: boom"))
    writer.flush()
    write_ladder(tmp_path, ladder(steps=(), wanted=(4,), complete=False), ())
    (row,) = pq.read_table(tmp_path / REQUESTS).to_pylist()
    assert (row["failure"], row["failure_detail"]) == ("http_status", "HTTP 500: boom")
