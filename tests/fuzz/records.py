"""Fuzz targets of files: accuracy log, journal, LoadGen's logs and conf files, pickled datasets."""

import functools
import json
import math
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import pandas as pd

from harness.compliance.registry import find_test
from harness.config.benchmark import load_benchmark
from harness.config.loadgen_conf import ConfKey, read_conf
from harness.dataset.pickled_frame import load_frame
from harness.errors import ConfigError, DatasetError, GradingError
from harness.files import RUN_RECORD
from harness.loadgen_logs.accuracy_log import AccuracyLog, EntrySplitter
from harness.loadgen_logs.summary_and_detail import parse_summary, read_detail, result_lines
from harness.record.answer_log import encode_answer, read_answers
from harness.record.journal import QUERY_ROW, read_journal
from harness.record.outcome import Completion, Failure, FailureKind
from harness.report.outcomes import read_outcomes
from harness.report.run_report import page_of
from harness.report.runs_table import table_lines
from sut.worker.journal_writer import JournalWriter
from tests.fuzz.damage import damaged, pieces, shuffled
from tests.harness.grading.logs import entry
from tests.kit import DATA
from tests.records import PATH
from tests.records import folder as recorded_folder
from tests.records import rows as recorded_rows
from tests.runs import ROOT

LOGS = DATA / "loadgen"


def accuracy_log(folder: Path, rng: Random) -> None:
    """Only GradingError; what is read without one is what another JSON parser reads."""
    text = shuffled(_ENTRIES, rng) if rng.random() < 0.5 else list(_ENTRIES)
    data = b"[\n" + b",\n".join(text) + b"\n]\n"
    data = damaged(data, rng) if rng.random() < 0.7 else data
    path = folder / "mlperf_log_accuracy.json"
    path.write_bytes(data)
    try:
        log = AccuracyLog(path)
        found = [(entry.qsl_idx, entry.token_ids.tolist()) for entry in log]
    except GradingError:
        return
    assert _split(data, pieces(data, rng)) == _split(data, [data])
    try:
        rows = json.loads(data)
        expected = [(row["qsl_idx"], len(bytes.fromhex(row["data"])) // log.width) for row in rows]
    except (ValueError, KeyError, TypeError, RecursionError):
        return  # JSON lines and cut logs are read too
    assert [index for index, _ in found] == [index for index, _ in expected]
    assert all(len(ids) >= size for (_, ids), (_, size) in zip(found, expected, strict=True))


def journal(folder: Path, rng: Random) -> None:
    """Never an exception, and never a row that nobody wrote."""
    rows, lines = folder / "queries-worker0.bin", folder / "failures-worker0.jsonl"
    whole_rows, whole_lines = _journal(folder)
    rows.write_bytes(damaged(whole_rows, rng))
    lines.write_bytes(damaged(whole_lines, rng))
    found = read_journal(folder)
    size = QUERY_ROW.itemsize
    true = {whole_rows[i : i + size] for i in range(0, len(whole_rows), size)}
    assert {row.tobytes() for row in found.rows} <= true
    assert all(isinstance(text, str) for text in found.details.values())


def kept_answers(folder: Path, rng: Random) -> None:
    """Never an exception, and never an answer that nobody gave: a resumed run sends these to LoadGen."""
    path = folder / "answers-worker0.bin"
    path.write_bytes(damaged(_ANSWERS, rng))
    for answer in read_answers(path):
        assert answer.output_ids().tolist() == _TRUE_ANSWERS[answer.sample_index]


def run_json(folder: Path, rng: Random) -> None:
    """A page and a row of the table, or one ConfigError."""
    run = folder / "run"
    if not run.exists():
        recorded_folder(run, recorded_rows())
    fields = json.loads(PATH.read_bytes())
    place, name = rng.choice(list(_places(fields)))
    if (value := rng.choice(_VALUES)) is _ABSENT:
        del place[name]
    else:
        place[name] = value
    (run / RUN_RECORD).write_text(json.dumps(fields).replace("Infinity", "1e400"))
    try:
        page_of(run)
    except ConfigError as error:
        assert "\n" not in str(error)
    table_lines(read_outcomes([run]), [run])


_ABSENT = object()
_VALUES: tuple[Any, ...] = (None, "", "x", -1, 0, True, 1e300, math.inf, 2**64 - 1, 10**400, [], {}, _ABSENT)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each object and list in a value, with each of its keys."""
    if isinstance(value, (dict, list)):
        for name, one in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, name
            yield from _places(one)


def loadgen_logs(folder: Path, rng: Random) -> None:
    """Never an exception, whatever the logs hold."""
    summary, detail = folder / "summary.txt", folder / "detail.txt"
    summary.write_bytes(damaged(rng.choice(_SUMMARIES), rng))
    parse_summary(summary.read_text(errors="replace"))
    result_lines(summary)
    lines = shuffled(_DETAIL_LINES, rng)
    detail.write_bytes(b"\n".join(lines))
    read_detail(detail)


def conf(folder: Path, rng: Random) -> None:
    """Only ConfigError; values are finite numbers."""
    path = folder / "user.conf"
    path.write_bytes(damaged(b"\n".join(shuffled(_CONF_LINES, rng)), rng))
    try:
        rows = read_conf(
            path, ConfKey("gpt-oss-120b", "Server"), rng.choice(("user", "mlperf", "audit"))
        ).rows
    except ConfigError as error:
        assert "\n" not in str(error)
        return
    assert all(0 <= row.value < float("inf") for row in rows)


_TESTS = tuple(find_test(load_benchmark("gpt-oss-120b"), name) for name in ("TEST07", "TEST09"))


def audit_config(folder: Path, rng: Random) -> None:
    """Only ConfigError; values are finite numbers."""
    path = folder / "audit.config"
    path.write_bytes(damaged(b"\n".join(shuffled(_AUDIT_LINES, rng)), rng))
    try:
        read = rng.choice(_TESTS).audit_config(path, rng.choice((None, "Offline", "Server")))
    except ConfigError:
        return
    assert all(np.isfinite(float(value)) for value in (*read.settings.values(), *read.thresholds.values()))


def safe_pickle(folder: Path, rng: Random) -> None:
    """Only DatasetError, and while it is read nothing is imported, run or opened besides the file."""
    path = folder / "data.pkl"
    _begin_to_watch()
    path.write_bytes(damaged(rng.choice(_PICKLES), rng))
    seen = _watched[str(path)] = []
    try:
        _read_pickle(path)
    except DatasetError as error:
        assert "\n" not in str(error)
    finally:
        _watched.clear()
    assert not seen, seen


_FORBIDDEN = ("exec", "compile", "import", "marshal.", "os.", "subprocess.", "socket.", "ctypes.", "shutil.")
# The file that is read, and what python's audit hook tells of meanwhile.
_watched: dict[str, list[str]] = {}


@functools.cache  # one hook for the process, which cannot be taken away
def _begin_to_watch() -> None:
    import pyarrow.compute  # noqa: F401 - what reading needs is imported before

    for content in _PICKLES:
        with NamedTemporaryFile(suffix=".pkl") as file:
            Path(file.name).write_bytes(content)
            _read_pickle(Path(file.name))
    sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    for path, seen in _watched.items():
        opened = event == "open" and str(arguments[0]) not in (path, "/proc/self/statm")
        if opened or event.startswith(_FORBIDDEN):
            seen.append(f"{event} {arguments[:1]}"[:200])


def _read_pickle(path: Path) -> None:
    frame = load_frame(path)
    for name in frame.names:
        frame.column(name)


def _split(data: bytes, parts: list[bytes]) -> list[bytes]:
    splitter = EntrySplitter(Path("log"))
    entries = [entry for part in parts for entry in splitter.feed(part)]
    assert all(data.startswith(entry.text, entry.offset) for entry in entries)
    return [entry.text for entry in entries]


def _journal(folder: Path) -> tuple[bytes, bytes]:
    """Bytes of a true journal: rows and failure lines."""
    kept = folder / "true-journal"
    if not kept.exists():
        kept.mkdir()
        writer = JournalWriter(kept, "worker0", 0)
        for number in range(30):
            failure = Failure(FailureKind.TRUNCATED, f"é {number}")
            answer = Completion(np.arange(1 + number, dtype=np.int32), "stop", 3)
            outcome = answer if number % 5 else failure
            writer.add(number, number, 0, (1, 2, 3, 4, 5), 3, 1, outcome)
        writer.flush()
    return (kept / "queries-worker0.bin").read_bytes(), (kept / "failures-worker0.jsonl").read_bytes()


_ENTRIES = [entry(index, range(200000 - index, 200012)).encode() for index in range(12)]
_TRUE_ANSWERS = {sample: [200000 - sample] * (1 + 3 * sample) for sample in range(20)}
_ANSWERS = b"".join(
    encode_answer(sample, 1, np.asarray(ids, "<i4").tobytes()) for sample, ids in _TRUE_ANSWERS.items()
)
_AUDIT_LINES = [
    b"*.*.mode = 2", b"*.*.accuracy_log_rng_seed = 720381539243781796", b"*.*.min_query_count = 990",
    b"*.Server.min_duration = 0  # none", b"*.*.test07_accuracy_threshold = 60.698",
    b"*.*.test09_min_output_tokens = 1150.38", b"*.*.test09_max_output_tokens = 1406.02",
]  # fmt: skip
_SUMMARIES = [path.read_bytes() for path in sorted(LOGS.glob("*/mlperf_log_summary.txt"))]
_DETAIL_LINES = (LOGS / "offline_errors/mlperf_log_detail.txt").read_bytes().split(b"\n")
_CONF_LINES = [
    line for name in ("quick", "user") for line in (ROOT / f"configs/{name}.conf").read_bytes().split(b"\n")
]
_FRAME = pd.DataFrame({"tok_input": [[1, 2], [3]], "dataset": ["aime25", "ä"], "n": [1, 2]})
_PICKLES = [
    *(path.read_bytes() for path in sorted((ROOT / "tests/harness/dataset/pickles").glob("*.pkl"))),
    *(pickle.dumps(_FRAME, protocol) for protocol in (2, 5)),
    pickle.dumps({"tok_input": [[1], [2]]}),
]
