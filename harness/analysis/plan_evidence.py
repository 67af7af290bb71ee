"""What earlier VALID runs of the same system say against the plan of a run, before anything is sent."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from harness.cli.door import called
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from harness.files import RUN_RECORD
from harness.record.run_record import RunRecord
from harness.record.settled import ServerInfo
from harness.text import duration, figure, utc

# A part of min_duration in which a run certainly ends too early: its rate would have to be a third lower than
# the measured one. Between this and min_duration it is likely only.
_CERTAIN = 0.75
_EARLY = "this run may end too early to be VALID"
_GROWS = "the queue is likely to grow until a latency limit is missed"
# Of the fields that describe a server, those in which runs of one system may differ.
_MAY_DIFFER = ("url", "trial_s", "repeats_ids")


def contradictions(record: RunRecord) -> Iterator[str]:
    """Warnings about a rate that an earlier run of the same system makes unlikely.

    Raises ConfigError for an Offline run that would certainly end before min_duration.
    """
    plan = record.plan
    if plan.accuracy or plan.audit_text is not None:
        return
    if plan.scenario.one_query:
        yield from _too_short(record, plan.client.log_dir)
    elif plan.scenario.poisson:
        yield from _above_offline(record)


def is_refuted(warning: str) -> bool:
    """Whether a warning is one of these, and so refuted by the VALID run that it was about."""
    return _EARLY in warning or _GROWS in warning


def _too_short(record: RunRecord, folder: Path) -> Iterator[str]:
    """Offline: so few samples that servers of the measured rate complete them before min_duration."""
    settings, samples = record.settled.loadgen_settings, record.settled.expected.samples
    least_s = settings["min_duration_ms"] / 1000
    earlier, rate = _valid_run(record, folder)
    if earlier is None or samples / rate >= least_s:
        return
    text = (
        f"{samples} samples last about {duration(samples / rate)} at the {figure(rate)} samples/s of "
        f"{earlier}, and a run has to last {duration(least_s)}; write a row "
        f"{record.plan.model_key}.{record.plan.scenario.loadgen}.target_qps = {float(f'{rate:.4g}'):g}"
    )
    if samples / rate < _CERTAIN * least_s:
        raise ConfigError(f"this run would end too early to be VALID: {text}")
    yield f"{_EARLY}: {text}"


def run_in_offline(record: RunRecord) -> tuple[str | None, float]:
    """A VALID run of the same system in Offline beside this one, as it is named, and its samples per second.

    (None, 0.0) where there is none.
    """
    log_dir = record.plan.client.log_dir
    return _valid_run(record, log_dir.parent.parent / Scenario.OFFLINE / log_dir.name)


def _above_offline(record: RunRecord) -> Iterator[str]:
    """Server: more queries per second than the servers answered without any latency limit."""
    earlier, rate = run_in_offline(record)
    asked = float(record.settled.loadgen_settings["server_target_qps"])
    if earlier is not None and asked > rate:
        yield (
            f"target_qps is {asked:g}, and the same servers reached {figure(rate)} samples/s in Offline, "
            f"without limits ({earlier}): {_GROWS}; "
            f"{called('find_peak.py', 'search')} finds the rate"
        )


def _valid_run(record: RunRecord, folder: Path) -> tuple[str | None, float]:
    """A VALID run of the same system in ``folder``, as it is named, and its samples per second."""
    try:
        earlier = RunRecord.read(folder / RUN_RECORD)
    except (OSError, ConfigError):
        return None, 0.0
    rate = earlier.statistics and earlier.statistics.samples_per_s
    if not earlier.is_valid or not rate or _system(earlier) != _system(record):
        return None, 0.0
    return f"the VALID run of {utc(earlier.started)} in {folder}", rate


def _system(record: RunRecord) -> tuple[object, ...]:
    """What decides how fast answers come; streaming differs between scenarios."""
    client = record.plan.client
    parameters = msgspec.structs.replace(client.parameters, stream=False)
    servers = sorted(_described(server) for server in record.servers)
    return client.benchmark.name, record.settled.dataset_sha256, parameters, client.max_concurrency, servers


def _described(server: ServerInfo) -> str:
    facts = {name: value for name, value in msgspec.to_builtins(server).items() if name not in _MAY_DIFFER}
    return repr(sorted(facts.items()))
