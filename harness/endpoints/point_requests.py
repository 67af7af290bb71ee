"""The tables of a point's requests: those that count, and those of its warm-up."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from harness.endpoints.point_numbers import PointRows
from harness.endpoints.run_folder import WARM_UP_REQUESTS
from harness.files import JOURNAL_DIR, REQUESTS
from harness.peak.ladder.steps import NOT_A_RESULT
from harness.record.answer_log import read_query_answers
from harness.record.requests_table import ByQuery, requests_table, write_requests


def write_point_requests(
    folder: Path, rows: PointRows, urls: Sequence[str], details: Mapping[int, str]
) -> None:
    """Write requests.parquet and warm_up.parquet from a journal's rows. Raises OSError."""
    texts = first_texts(folder / JOURNAL_DIR)
    for name, part in ((REQUESTS, rows.counted), (WARM_UP_REQUESTS, rows.warm_up)):
        table = requests_table(part, urls, details, [texts])
        label = {**(table.schema.metadata or {}), "label": NOT_A_RESULT}
        write_requests(folder / name, table.replace_schema_metadata(label))


def first_texts(journal: Path) -> ByQuery:
    """The first text of each answer in a journal's folder. Raises OSError."""
    found = [(one.query_id, one.visible_ns, one.visible_tokens) for one in read_query_answers(journal)]
    ids, times, tokens = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return ByQuery(ids.astype(np.uint64), {"visible_ns": times, "visible_tokens": tokens})
