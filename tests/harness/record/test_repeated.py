"""The first line of a repeated command, which a dry run has in the conditional."""

from pathlib import Path

import pytest

from harness.record.repeated import FirstLine

EARLIER = "the run of 2026-11-23 01:32:35 UTC"


@pytest.mark.parametrize(
    ("dry_run", "continues", "sent", "begins", "moved"),
    [
        (False, "continues", "is sent", "begins anew", "is moved"),
        (True, "would continue", "would be sent", "would begin anew", "would be moved"),
    ],
)
def test_a_dry_run_does_nothing_of_it(dry_run, continues, sent, begins, moved):
    line = FirstLine(dry_run)
    assert line.continues(EARLIER, "36 of 96") == f"{continues} {EARLIER}: 36 of 96"
    assert (
        line.complete(EARLIER, Path("a"))
        == f"complete: {EARLIER} in a; nothing {sent} (--restart begins anew)"
    )
    assert line.anew("", EARLIER, Path("b")) == f"{begins}: {EARLIER} {moved} to b before the first query"
    assert line.anew("samples", EARLIER, Path("b")).startswith(f"{begins}, samples: ")
