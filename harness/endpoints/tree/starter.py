"""The beginning of a system's TOML: what this machine and the run folders show, and what is still needed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from harness.endpoints.tree.point_files import DESCRIBED, DESCRIBED_NODE
from harness.endpoints.tree.run_facts import RunFacts, servers_of_points
from harness.endpoints.tree.system_file import (
    EXAMPLE,
    Accelerator,
    Dataset,
    Model,
    NodeType,
    System,
    SystemFile,
)
from harness.record.settled import ServerInfo, ranks_of
from harness.toml_files import quoted

_NEEDED = "  # needed"
_TP, _PP, _EP = ("tp_size", "tensor_parallel_size"), ("pp_size",), ("ep_size",)  # SGLang's start options


def starter(machine: Mapping[str, str], runs: Sequence[RunFacts]) -> Iterator[str]:
    """The lines. ``machine`` holds measured fields by their official names."""
    servers = servers_of_points(runs)
    yield f"# Complete this file; {EXAMPLE} explains every field."
    for name in ("submitter", "submission_id", "system_id"):
        yield f'{name} = ""{_NEEDED}: a folder\'s name'
    yield f"implementation = {quoted(_implementation(servers))}"
    yield 'division = "Standardized"'
    yield f'target_cohort = ""{_NEEDED}: C0 of a month is its first Wednesday, C1 its third: 2026-12-C0'
    yield from _table("system", System, {}, DESCRIBED)
    yield ""
    yield "# As measured on this machine: is it a node of the system?"
    yield from _table("[node_types]", NodeType, machine, (*DESCRIBED_NODE, "cooling"), blank=False)
    yield from _table("[node_types.accelerator_info]", Accelerator, machine, ("accelerators_per_node",))
    yield ""
    yield "[node_types.power]  # W of one processor and one accelerator"
    for name in ("cpu", "accelerator"):
        yield f'# {name} = {{ watts = 0, source = "https://" }}{_NEEDED}'
    named = runs[0].model_name if runs else ""
    yield from _table("model", Model, {"model_name": named}, ("model_precision", "link_to_model"))
    yield from _table("dataset", Dataset, {}, ("dataset_link",))
    yield ""
    yield "[parallelism]"
    yield from _parallelism(servers)


def placeholders(runs: Sequence[RunFacts]) -> SystemFile:
    """Folders' names alone, for a tree without the TOML; everything else is missing."""
    return SystemFile(
        submitter="submitter",
        submission_id="rehearsal",
        system_id="system",
        implementation=_implementation(servers_of_points(runs)),
        division="Standardized",
    )


def _implementation(servers: Sequence[ServerInfo]) -> str:
    """A folder's name of the engine."""
    engine = next((server.engine for server in servers), "server").lower()
    return "".join(one if one.isalnum() or one in "._-" else "-" for one in engine)


def _table(
    name: str,
    kind: type[msgspec.Struct],
    known: Mapping[str, str],
    needed: Sequence[str],
    *,
    blank: bool = True,
) -> Iterator[str]:
    """The plain fields of a table: those that are known or needed; others that are text, empty."""
    if blank:
        yield ""
    yield f"[{name}]"
    for field in msgspec.structs.fields(kind):
        value: Any = known.get(field.name, "")
        if isinstance(field.default, int) and not isinstance(field.default, bool):
            mark = "" if value.isdigit() or field.name not in needed else _NEEDED
            yield f"{field.name} = {int(value) if value.isdigit() else field.default}{mark}"
        elif isinstance(field.default, str):
            mark = _NEEDED if field.name in needed and not value else ""
            yield f"{field.name} = {quoted(value)}{mark}"


def _parallelism(servers: Sequence[ServerInfo]) -> Iterator[str]:
    """As the servers of one point reported it."""
    urls = {server.url: server for server in servers}.values()
    for name, keys in (("tensor_parallel", _TP), ("pipeline_parallel", _PP), ("expert_parallel", _EP)):
        sizes = {server.settings.get(key) for server in urls for key in keys} - {None}
        if len(sizes) == 1:
            yield f"{name} = {sizes.pop()}"
        elif name == "tensor_parallel":
            yield f"{name} = 1{_NEEDED}"
    ranks = sum(map(ranks_of, urls))
    yield f"data_parallel = {ranks or 1}{'' if ranks else _NEEDED}"
