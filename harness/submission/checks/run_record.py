"""Checks of run.json, which is kept beside the tree and never submitted."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.compliance.registry import TESTS
from harness.submission.checks.check_context import CheckContext
from harness.submission.checks.issue import Issue
from harness.submission.layout import ACCURACY, PERFORMANCE

RUN_RECORD = "run.json"
ADDRESS = "server"
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def read_record(path: Path) -> dict[str, Any] | None:
    """The record, None where there is none or it is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def check_records(context: CheckContext, kept: Path | None) -> Iterator[Issue]:
    """Origin, deviations and verdicts; ``kept`` is the scenario's folder of kept files."""
    if kept is None:
        return
    found = {folder: read_record(kept / folder / RUN_RECORD) for folder in (PERFORMANCE, ACCURACY)}
    found |= {Path(test): read_record(kept / test / RUN_RECORD) for test in TESTS}
    records = {folder: record for folder, record in found.items() if record is not None}
    for folder, record in records.items():
        if folder in (PERFORMANCE, ACCURACY):
            yield from _verdict(context, folder, record)
        if context.closed:
            for deviation in record.get("deviations") or ():
                yield context.issue("deviations", folder, str(deviation))
    for what, text in origin_differences({folder.as_posix(): record for folder, record in records.items()}):
        yield context.issue("origin", Path(), text, is_warning=what == ADDRESS)


def origin_differences(records: Mapping[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Differences in server and commit between the runs of one scenario, as (field, text).

    ``records`` are by the name of the run. The address of a server may change while the server does not.
    """
    origins = [(name, _origin(record)) for name, record in records.items()]
    for name, origin in origins[1:]:
        first_name, first = origins[0]
        for what, value in origin.items():
            if value and first[what] and value != first[what]:
                yield what, f"{what} of {first_name} is {first[what]}, of {name} {value}"


def _origin(record: Mapping[str, Any]) -> dict[str, str]:
    """Empty values where the record has none. An embedded server has another port in each run."""
    servers = _servers(record)
    embedded = (record.get("plan") or {}).get("backend") == "embedded"
    settings = [server.get("settings") for server in servers if server.get("settings")]
    commit = ((record.get("provenance") or {}).get("git") or {}).get("commit")
    named = {f"{server.get('engine')} {server.get('version')}" for server in servers}
    return {
        ADDRESS: "" if embedded else ", ".join(sorted(str(server.get("url") or "") for server in servers)),
        "engine": ", ".join(sorted(named)),
        "model": ", ".join(sorted({str(server.get("model")) for server in servers})),
        "server settings": json.dumps(settings, sort_keys=True) if settings else "",
        "commit of the harness": str(commit or ""),
    }


def servers_elsewhere(record: Mapping[str, Any], hostname: str) -> bool:
    """Whether the client or a server of the run was on another machine than this one."""
    host = ((record.get("provenance") or {}).get("host") or {}).get("hostname")
    hosts = {urlsplit(str(server["url"])).hostname for server in _servers(record) if server.get("url")}
    return (host or hostname) != hostname or not hosts <= {*_LOCAL, hostname.lower()}


def _servers(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    servers = record.get("servers")
    return [one for one in servers if isinstance(one, dict)] if isinstance(servers, list) else []


def _verdict(context: CheckContext, folder: Path, record: dict[str, Any]) -> Iterator[Issue]:
    verdict = record.get("verdict") or {}
    result = verdict.get("result")
    if result != "VALID":
        reasons = "; ".join(map(str, verdict.get("reasons") or ())) or "the run did not finish"
        yield context.issue("run-verdict", folder, f"the verdict in run.json is {result}: {reasons}")
