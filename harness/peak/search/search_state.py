"""search.json: what a search has measured and found, written after each measurement; --resume reads it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import ConfigError
from harness.files import atomic_write
from harness.peak.search.conclusion import Conclusion
from harness.peak.search.policy import History
from harness.record.run_record import RunRecord

SEARCH_STATE = "search.json"
SCHEMA = 1
_NAMED = 5  # A message names at most this number of differences.


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that must be the same for a search to be resumed."""

    benchmark: str
    scenario: str
    dataset_sha256: str
    samples: int
    servers: tuple[dict[str, Any], ...]
    parameters: dict[str, Any]
    loadgen_settings: dict[str, int | float | bool]
    max_concurrency: int | None = None


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
    """The state in a folder. Raises ConfigError where there is none, or a damaged one."""
    path = folder / SEARCH_STATE
    try:
        state = msgspec.json.decode(path.read_bytes(), type=SearchState)
    except FileNotFoundError:
        raise ConfigError(f"--resume: there is no {path}; omit the flag to begin a search") from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not the state of a search: {error}; omit --resume to begin a new one"
        ) from None
    if state.schema != SCHEMA:
        raise ConfigError(f"{path} has schema {state.schema}, this version reads {SCHEMA}")
    probes = tuple(one for one in state.history.probes if one.verdict != "FAILED")
    return msgspec.structs.replace(state, history=History(state.history.steps, probes))


def identity_of(record: RunRecord) -> Identity:
    """The identity of a search, from the record of its checked plan."""
    plan, client, settled = record.plan, record.plan.client, record.settled
    settings = {
        name: value for name, value in settled.loadgen_settings.items() if name != "server_target_qps"
    }
    servers = [
        {
            "url": "" if client.backend == "embedded" else one.url,  # its port differs each time
            "model": one.model,
            "version": one.version,
            "max_running_requests": one.max_running_requests,
            "dp_size": one.dp_size,
            "settings": one.settings,
        }
        for one in record.servers
    ]
    return msgspec.convert(
        {
            "benchmark": client.benchmark.name,
            "scenario": str(plan.scenario),
            "dataset_sha256": settled.dataset_sha256,
            "samples": settled.samples,
            "servers": servers,
            "parameters": msgspec.to_builtins(client.parameters),
            "loadgen_settings": settings,
            "max_concurrency": client.max_concurrency,
        },
        Identity,
    )


def check_same(folder: Path, before: Identity, now: Identity) -> None:
    """Raises ConfigError that names what has changed since the search began."""
    changed = list(_differences(msgspec.to_builtins(before), msgspec.to_builtins(now)))
    if changed:
        more = f"; and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        details = "; ".join(changed[:_NAMED]) + more
        raise ConfigError(
            f"--resume: the search in {folder} has other settings ({details}); omit --resume to begin "
            "a new one"
        )


def _differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """``servers.0.model: A -> B``: each value of two trees that is not the same."""
    if isinstance(before, list | tuple) and isinstance(now, list | tuple):
        if len(before) != len(now):
            yield f"{name}: {len(before)} -> {len(now)} of them"
            return
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if not isinstance(before, dict) or not isinstance(now, dict):
        if before != now:
            yield f"{name}: {before} -> {now}"
        return
    for key in dict.fromkeys([*before, *now]):
        yield from _differences(before.get(key), now.get(key), f"{name}.{key}" if name else str(key))
