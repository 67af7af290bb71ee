"""Checks of run.json, which is kept beside the tree and never submitted."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from harness.compliance.registry import TESTS
from harness.errors import ConfigError
from harness.files import ACCURACY, PERFORMANCE, RUN_RECORD
from harness.record.run_record import RunRecord
from harness.submission.checks.check_context import CheckContext
from harness.submission.checks.issue import Issue

ADDRESS = "server"
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def read_record(path: Path) -> RunRecord | None:
    """The record, None where there is none. Raises ConfigError for a damaged one."""
    try:
        return RunRecord.read(path)
    except FileNotFoundError:
        return None


def check_records(context: CheckContext, kept: Path | None) -> Iterator[Issue]:
    """Origin, deviations and verdicts; ``kept`` is the scenario's folder of kept files."""
    if kept is None:
        return
    records: dict[Path, RunRecord] = {}
    for folder in (PERFORMANCE, ACCURACY, *map(Path, TESTS)):
        try:
            record = read_record(kept / folder / RUN_RECORD)
        except ConfigError as error:
            yield context.issue("run-verdict", folder, str(error))
            continue
        if record is not None:
            records[folder] = record
    others = {record.plan.client.benchmark.name for record in records.values()} - {context.benchmark.name}
    for name in sorted(others):
        text = f"these runs are of {name} (run.json), not of {context.benchmark.name}"
        yield context.issue("origin", Path(), text, remedy=f"build the submission of {name} from them")
    for folder, record in records.items():
        if folder in (PERFORMANCE, ACCURACY):
            yield from _verdict(context, folder, record)
        if context.closed:
            for deviation in record.deviations:
                yield context.issue("deviations", folder, deviation)
    for what, text in origin_differences({folder.as_posix(): record for folder, record in records.items()}):
        yield context.issue("origin", Path(), text, is_warning=what == ADDRESS)


def origin_differences(records: Mapping[str, RunRecord]) -> Iterator[tuple[str, str]]:
    """Differences in server and commit between the runs of one scenario, as (field, text).

    ``records`` are by the name of the run. The address of a server may change while the server does not.
    """
    origins = [(name, _origin(record)) for name, record in records.items()]
    for name, origin in origins[1:]:
        first_name, first = origins[0]
        for what, value in origin.items():
            if value and first[what] and value != first[what]:
                yield what, f"{what} of {first_name} is {first[what]}, of {name} {value}"


def _origin(record: RunRecord) -> dict[str, str]:
    """Empty values where the record has none. An embedded server has another port in each run."""
    embedded, git = record.plan.client.backend == "embedded", record.provenance.git
    # Equal servers count once: an accuracy run may do without some (--min-replicas).
    settings = sorted(
        {json.dumps(server.settings, sort_keys=True) for server in record.servers if server.settings}
    )
    urls = {*(server.url for server in record.servers), *record.left_out}
    return {
        ADDRESS: "" if embedded else ", ".join(sorted(urls)),
        "engine": ", ".join(sorted({f"{server.engine} {server.version}" for server in record.servers})),
        "model": ", ".join(sorted({str(server.model) for server in record.servers})),
        "server settings": ", ".join(settings),
        "commit of the harness": "" if git is None else str(git),
    }


def servers_elsewhere(record: RunRecord, hostname: str) -> bool:
    """Whether the client or a server of the run was on another machine than this one."""
    hosts = {urlsplit(server.url).hostname for server in record.servers}
    return record.provenance.host.hostname != hostname or not hosts <= {*_LOCAL, hostname.lower()}


def _verdict(context: CheckContext, folder: Path, record: RunRecord) -> Iterator[Issue]:
    verdict = record.verdict
    if verdict is None:
        yield context.issue("run-verdict", folder, f"{RUN_RECORD} has no verdict: the run did not finish")
    elif verdict.result != "VALID":
        text = f"the verdict in {RUN_RECORD} is {verdict.result}: {'; '.join(verdict.reasons)}"
        yield context.issue("run-verdict", folder, text)
