"""run.json of the runs of a submission: where they were made, and whether that is one place."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from harness.record.run_record import RunRecord

ADDRESS = "server"
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def read_record(path: Path) -> RunRecord | None:
    """The record, None where there is none. Raises ConfigError for a damaged one."""
    try:
        return RunRecord.read(path)
    except FileNotFoundError:
        return None


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
    """The origin by field, "" where the record has none. An embedded server has another port in each run."""
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
    here = all(is_here(server.url, hostname) for server in record.servers)
    return record.provenance.host.hostname != hostname or not here


def is_here(url: str, hostname: str) -> bool:
    """Whether a URL is plainly one of the machine of this name."""
    try:
        return urlsplit(url).hostname in (*_LOCAL, hostname.lower())
    except ValueError:  # of several machines in one: http://node[1-2]:30000
        return False
