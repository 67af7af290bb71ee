"""The descriptions that ``build`` writes: systems/<system>.json and measurements.json.

Their sources are the submitter's TOML (configs/submission/example.toml is one), this machine and the runs.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness.config.benchmark import Benchmark
from harness.config.choices import available_benchmarks
from harness.errors import ConfigError
from harness.record.run_record import RunRecord
from harness.submission.tree.round_rules import RoundRules, load_rules
from harness.submission.tree.system_description import POWER_FIELD, NameplateError, design_watts
from harness.toml_files import read_struct, require_folder_names

FROM_RUNS = ("framework", "other_software_stack")  # fields that run.json fills in
# By difflib; host_processor_vcpu_count, which published descriptions add, is alike to a known field by 0.88.
_TYPO = 0.9


class SubmitterInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The submitter's TOML."""

    submitter: str
    """becomes a folder's name"""
    system_id: str
    """becomes a folder's name"""
    division: Literal["closed", "open"] = "closed"
    nameplate: Path | None = None
    """the list of the system's power supplies, a path from the TOML's folder"""
    system: dict[str, str | int | float] = {}
    """fields of systems/<system>.json"""
    measurements: dict[str, str | int | dict[str, str | int]] = {}
    """fields of measurements.json; a table with the name of a benchmark has its own"""
    round: str | None = None
    """of a campaign, as all fields below: as `--round`"""
    results: Path | None = None
    """the folder of its runs, a path from the TOML's folder"""
    output: Path | None = None
    """the folder to submit, the same"""
    servers: dict[str, Any] = {}
    """see harness/campaign/campaign_file.py"""
    benchmarks: dict[str, Any] = {}
    """the same"""


def read_submitter_info(path: Path, division: str | None = None) -> SubmitterInfo:
    """Read the TOML and check its names; ``division`` overrides that of the file. Raises ConfigError."""
    remedy = "start from a copy of configs/submission/example.toml"
    found = read_struct(str(path), path, SubmitterInfo, remedy)
    require_folder_names(str(path), found, ("submitter", "system_id"))
    nameplate = None if found.nameplate is None else path.absolute().parent / found.nameplate
    if nameplate is not None:
        _check_nameplate(path, nameplate)
    _check_measurements(path, found)
    _check_fields(path, found)
    return msgspec.structs.replace(found, division=division or found.division, nameplate=nameplate)


def _check_nameplate(path: Path, nameplate: Path) -> None:
    try:
        wrong = "" if design_watts(nameplate) else "has no component with PSUs and Min PSUs Needed"
    except OSError as error:
        wrong = str(error.strerror)
    except NameplateError as error:
        wrong = str(error)
    if wrong:
        raise ConfigError(f"{path}: nameplate {nameplate}: {wrong}")


def _check_measurements(path: Path, info: SubmitterInfo) -> None:
    known = available_benchmarks()
    tables = [name for name, value in info.measurements.items() if isinstance(value, dict)]
    if wrong := [name for name in tables if name not in known]:
        raise ConfigError(f"{path}: [measurements.{wrong[0]!r}] is no benchmark, expected {', '.join(known)}")


def _check_fields(path: Path, info: SubmitterInfo) -> None:
    """Published descriptions have fields of their own; one that stands in place of a known one is a typo."""
    rules = load_rules()  # no round has other names
    _refuse_typo(path, "system", info.system, (*rules.system.fields, *rules.system.network, POWER_FIELD))
    _refuse_typo(path, "measurements", info.measurements, rules.measurements.required)
    for name, fields in info.measurements.items():
        if isinstance(fields, dict):
            _refuse_typo(path, f"measurements.{name!r}", fields, rules.measurements.required)


def _refuse_typo(path: Path, table: str, fields: Collection[str], known: Collection[str]) -> None:
    absent = [name for name in known if name not in fields]
    for name in (one for one in fields if one not in known):
        if near := difflib.get_close_matches(name.lower(), absent, 1, _TYPO):
            raise ConfigError(
                f"{path}: [{table}]: unknown key {name!r}; did you mean {near[0]!r}? To keep "
                f"both, write {near[0]!r}, too"
            )


def system_fields(
    info: SubmitterInfo,
    folders: Mapping[str, str],
    machine: Mapping[str, str],
    records: Sequence[RunRecord],
    rules: RoundRules,
) -> dict[str, Any]:
    """All required fields and those that the submitter adds; what is not known is empty.

    ``folders`` holds folder names that the description repeats.
    """
    stated = {name: value for name, value in info.system.items() if value != ""}
    known = {**machine, **_software(machine, records), **stated, **folders}
    fields = {name: known.get(name, "") for name in rules.system.fields}
    return fields | {name: value for name, value in known.items() if name not in fields}


def measurements(info: SubmitterInfo, benchmark: Benchmark, rules: RoundRules) -> dict[str, Any]:
    """The fields of measurements.json. Raises ConfigError that names missing fields."""
    common = {name: value for name, value in info.measurements.items() if not isinstance(value, dict)}
    own = info.measurements.get(benchmark.name, {})
    fields: dict[str, Any] = {"starting_weights_filename": _weights(benchmark), **common}
    fields |= own if isinstance(own, dict) else {}
    missing = [name for name in rules.measurements.required if not fields.get(name)]
    if missing:
        raise ConfigError(
            f"measurements.json is incomplete: empty {', '.join(missing)}; write these into "
            "[measurements] of the submission's TOML"
        )
    return fields


def _weights(benchmark: Benchmark) -> str:
    revision = f" @ {benchmark.model_revision}" if benchmark.model_revision else ""
    return f"https://huggingface.co/{benchmark.model}{revision}"


def _software(machine: Mapping[str, str], records: Sequence[RunRecord]) -> dict[str, Any]:
    """Software of the server and of the client, from run.json."""
    fields: dict[str, Any] = {}
    servers = [server for record in records for server in record.servers]
    if versions := {server.software for server in servers if server.version}:
        fields["framework"] = ", ".join(sorted(versions))
    stack = [machine.get("other_software_stack", "")]
    for client in [record.provenance for record in records][:1]:
        loadgen = client.packages.get("mlcommons-loadgen")
        stack += [client.python, f"LoadGen {loadgen}" if loadgen else ""]
    fields["other_software_stack"] = ", ".join(part for part in stack if part)
    return fields
