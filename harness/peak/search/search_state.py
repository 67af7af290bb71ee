"""search.json: what a search has measured and found, written after each measurement, for the next command."""

from pathlib import Path
from typing import Any, Literal

import msgspec

from harness.config.plans import ClientPlan
from harness.errors import ConfigError
from harness.files import atomic_write
from harness.json_files import read_json
from harness.peak.search.conclusion import Conclusion
from harness.peak.search.policy import History
from harness.record.output_dir import aside_of, written_at
from harness.record.repeated import MOVES_ASIDE, FirstLine
from harness.record.resume import differences
from harness.record.run_record import RunRecord
from harness.record.settled import ServerInfo
from harness.text import first_few, utc

SEARCH_STATE = "search.json"
SEARCH_FOLDER = "search"  # of a search, below that of a scenario
PROBE_FOLDER = "probe-"  # in it, with the number of a run
SCHEMA = 1
_NAMED = 5  # A message names at most this number of differences.


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that must be the same for a search to be resumed."""

    benchmark: str
    scenario: str
    dataset_sha256: str
    samples: int
    tokenizer_sha256: str = ""
    """as of a run's record"""
    servers: tuple[dict[str, Any], ...]
    parameters: dict[str, Any]
    loadgen_settings: dict[str, int | float | bool]
    max_concurrency: int | None = None
    num_workers: int | None = None


class SearchState(msgspec.Struct, frozen=True, kw_only=True):
    """The file."""

    schema: int = SCHEMA
    identity: Identity
    limits_ns: dict[str, int]
    tolerance: float
    budget_s: float | None = None
    history: History = History()
    conclusion: Conclusion | None = None
    """None in the file of a search that was killed"""

    def write(self, folder: Path) -> None:
        """Write the file completely or not at all. Raises OSError."""
        with atomic_write(folder / SEARCH_STATE) as file:
            file.write(msgspec.json.encode(self) + b"\n")


def read_state(folder: Path) -> SearchState:
    """The state in a folder. Raises ConfigError for one that is missing or damaged."""
    path = folder / SEARCH_STATE
    remedy = f"restore it, or {MOVES_ASIDE} the search aside and begins anew"
    state = read_json(path, SearchState, remedy)
    if state.schema != SCHEMA:
        raise ConfigError(f"{path} has schema {state.schema}, this version reads {SCHEMA}; {remedy}")
    return state


def identity_of(record: RunRecord) -> Identity:
    """The identity of a search, from the record of its checked plan."""
    plan, client, settled = record.plan, record.plan.client, record.settled
    settings = {
        name: value for name, value in settled.loadgen_settings.items() if name != "server_target_qps"
    }
    servers = tuple(
        {
            "url": "" if client.backend == "embedded" else one.url,  # its port differs each time
            "model": one.model,
            "dp_size": one.dp_size,
            "revision": one.revision,
            "weight_version": one.weight_version,
            "stream_interval": one.stream_interval,
            "api": one.protocol.api,
            **_own_facts(one),
        }
        for one in record.servers
    )
    return Identity(
        benchmark=client.benchmark.name,
        scenario=str(plan.scenario),
        dataset_sha256=settled.dataset_sha256,
        samples=settled.samples,
        tokenizer_sha256=record.tokenizer_sha256,
        servers=servers,
        parameters=msgspec.to_builtins(client.parameters),
        loadgen_settings=settings,
        max_concurrency=client.max_concurrency,
        num_workers=client.num_workers,
    )


def _own_facts(server: ServerInfo) -> dict[str, Any]:
    """Facts that servers behind one router need not share: each reading is of another server there."""
    if server.router is not None:
        return {"router": server.router.name, "servers_behind": server.router.servers}
    return {
        "router": None,
        "version": server.version,
        "max_running_requests": server.max_running_requests,
        "settings": server.settings,
    }


class EarlierSearch(msgspec.Struct, frozen=True):
    """An earlier search in the folder, and what its command makes of it when it is repeated."""

    course: Literal["continue", "complete", "anew"]
    first_line: str
    state: SearchState | None = None
    """None where it begins anew"""


def earlier_search(folder: Path, now: SearchState, client: ClientPlan) -> EarlierSearch | None:
    """What the folder holds; ``now`` is the search that is asked for, with nothing measured.

    Raises ConfigError for a damaged state, and where --resume finds no search to resume.
    """
    line = FirstLine(client.dry_run)
    if (aside := aside_of(folder)) is None and not client.resume:
        return None
    is_there = (folder / SEARCH_STATE).is_file()
    before = read_state(folder) if is_there and not client.restart else None
    if before is None and client.resume:
        raise ConfigError(f"--resume: there is no {folder / SEARCH_STATE}; omit the flag to begin a search")
    if before is None:
        why = "as asked for" if client.restart else ""
        return EarlierSearch("anew", line.anew(why, f"what {folder} holds", aside or folder))
    earlier = f"the search of {utc(written_at(folder / SEARCH_STATE))}"
    measured = before.history.text
    if changed := other_settings(before.identity, now.identity):
        if client.resume:
            raise ConfigError(
                f"--resume: the search in {folder} has other settings ({changed}); omit --resume to begin a "
                "new one"
            )
        why = f"as the earlier search has other settings ({changed})"
        return EarlierSearch("anew", line.anew(why, f"{earlier} ({measured})", aside or folder))
    if _is_complete(before, now):
        return EarlierSearch("complete", line.complete(f"{earlier}, {measured},", folder), before)
    return EarlierSearch("continue", line.continues(earlier, f"{measured} are measured"), before)


def _is_complete(before: SearchState, now: SearchState) -> bool:
    """Whether nothing is left to measure; one that ended at this client's limits may have others now."""
    found = before.conclusion
    return found is not None and found.outcome == "FOUND" and before.tolerance == now.tolerance


def other_settings(before: Identity, now: Identity) -> str:
    """What has changed since the search began; "" for nothing."""
    earlier, asked = msgspec.to_builtins(before), msgspec.to_builtins(now)
    for tree in (earlier, asked):
        tree["servers"] = {"number": len(tree["servers"])} | dict(enumerate(tree["servers"]))
    return first_few(differences("", earlier, asked, "{}: {} -> {}"), _NAMED, "; ")
