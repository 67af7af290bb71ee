"""systems/<system>.json and measurements.json: the submitter's words over what machine and runs tell."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.config.benchmark import Benchmark
from harness.errors import ConfigError
from harness.submission.checks.documents import system_problems
from harness.submission.rules import Rules
from harness.submission.submitter_info import Statement

Fields = dict[str, Any]
FROM_RUNS = ("framework", "other_software_stack")  # what run.json tells


def system_fields(
    statement: Statement, machine: Mapping[str, str], records: Sequence[Mapping[str, Any]], rules: Rules
) -> Fields:
    """All required fields, and those that the submitter adds. ConfigError names what is missing."""
    place = {"division": statement.division, "submitter": statement.submitter}
    stated = {name: value for name, value in statement.system.items() if value != ""}
    known = {**machine, **_software(machine, records), **stated, **place}
    fields = {name: known.get(name, "") for name in rules.system.fields}
    fields |= {name: value for name, value in known.items() if name not in fields}
    if problems := list(system_problems(fields, rules.system, place)):
        raise ConfigError(
            f"the system description is not complete: {'; '.join(problems)}; write these into [system] "
            "of the submission's TOML ('prepare_submission.py system' on a node of the system prints them)"
        )
    return fields


def measurements(statement: Statement, benchmark: Benchmark, rules: Rules) -> Fields:
    """Raises ConfigError that names what is missing."""
    fields: Fields = {"starting_weights_filename": _weights(benchmark), **statement.measurements}
    missing = [name for name in rules.measurements.required if not fields.get(name)]
    if missing:
        raise ConfigError(
            f"measurements.json is not complete: empty {', '.join(missing)}; write these into "
            "[measurements] of the submission's TOML"
        )
    return fields


def _weights(benchmark: Benchmark) -> str:
    revision = f" @ {benchmark.model_revision}" if benchmark.model_revision else ""
    return f"https://huggingface.co/{benchmark.model}{revision}"


def _software(machine: Mapping[str, str], records: Sequence[Mapping[str, Any]]) -> Fields:
    """What the runs recorded of the server and of the client."""
    fields: Fields = {}
    servers = [server for record in records for server in record.get("servers") or ()]
    versions = {
        f"{server.get('engine', 'server')} {server['version']}" for server in servers if server.get("version")
    }
    if versions:
        fields["framework"] = ", ".join(sorted(versions))
    client = [record.get("provenance") or {} for record in records][:1]
    stack = [machine.get("other_software_stack", "")]
    for provenance in client:
        loadgen = (provenance.get("packages") or {}).get("mlcommons-loadgen")
        stack += [str(provenance.get("python") or ""), f"LoadGen {loadgen}" if loadgen else ""]
    fields["other_software_stack"] = ", ".join(part for part in stack if part)
    return fields
