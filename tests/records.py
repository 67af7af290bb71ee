"""A recorded run.json, and the records that tests make of it."""

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from harness.config.plans import ClientPlan
from harness.config.scenario import Scenario
from harness.record.resolved_plan import Settled
from harness.record.run_record import ReplicaNetwork, RunRecord

# Of a server run of the embedded engine with configs/quick.conf: INVALID, for the engine was too slow. Its
# warnings have the field's earlier name.
PATH = Path(__file__).parent / "data/runs/server.json"
ENDED = RunRecord.read(PATH)

# A server on the same network that loses nothing.
NEAR = ReplicaNetwork(
    connects=64,
    connect_mean_ns=300_000.0,
    connect_max_ns=900_000,
    failed_connects=0,
    waited=0,
    waited_mean_ns=None,
    rtt_mean_ns=210_000.0,
    rtt_min_ns=200_000,
    sent=5000,
    retransmitted=0,
    received=90_000,
    gaps=0,
)


def with_plan(record: RunRecord, **fields: Any) -> RunRecord:
    """The same record of another plan; the names are those of run.json's ``plan``."""
    settled, client = (
        {name: fields.pop(name) for name in list(fields) if name in kind.__struct_fields__}
        for kind in (Settled, ClientPlan)
    )
    plan = replace(record.plan, client=replace(record.plan.client, **client), **fields)
    return replace(record, plan=plan, settled=replace(record.settled, **settled))


def started(**plan: Any) -> RunRecord:
    """The record before the first query of an offline run without deviations."""
    return with_plan(
        RunRecord(
            plan=ENDED.plan,
            settled=ENDED.settled,
            provenance=ENDED.provenance,
            servers=ENDED.servers,
            started=ENDED.started,
            clock=ENDED.clock,
        ),
        **{"scenario": Scenario.OFFLINE, **plan},
    )


def text(**fields: Any) -> str:
    """The recorded file with other fields."""
    return json.dumps(json.loads(PATH.read_text()) | fields)


def verdict(result: str, *reasons: str, complete: bool = False, **fields: Any) -> str:
    """The recorded file with another verdict, and without deviations but those in ``fields``."""
    found = {"result": result, "reasons": reasons, "complete": complete}
    return text(**{"deviations": [], "verdict": found} | fields)
