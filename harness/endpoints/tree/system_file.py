"""The TOML of a system and its submitter: what no run can show. ``EXAMPLE`` is one.

Names of fields are the official ones where point.yaml or system_desc.json have the field.
"""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from harness.endpoints.point_run import WarmUp
from harness.errors import ConfigError, refused
from harness.toml_files import read_struct, require_folder_names

_LONGEST_WARM_UP_S = 86_400
LONGEST_SHORT_NAME = 20  # shortened_system_name, rules §8.2
EXAMPLE = "configs/submission/endpoints.example.toml"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_SOURCE = re.compile(r"https?://.+|D\.[1-4]", re.DOTALL)  # as the official checker takes it

_Count = Annotated[int, msgspec.Meta(ge=0)]
_AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class Watts(msgspec.Struct, frozen=True, kw_only=True):
    """A power figure and where it is published."""

    watts: _Amount
    source: str
    """a URL, or `D.1` to `D.4`: a default of the rules' Appendix D"""
    source_type: Literal["vendor_spec", "publication", "public_statement"] = "vendor_spec"


class ScaleUp(msgspec.Struct, frozen=True, kw_only=True):
    """The network between the accelerators of a node: its switches, or its traffic and energy per bit."""

    switches: _Count = 0
    switch: Watts | None = None
    bandwidth_tbps: _Amount | None = None
    """in terabytes per second, as the rules' worked examples read it"""
    pj_per_bit: _Amount | None = None
    source: str = ""
    """of pj_per_bit"""


class NodePower(msgspec.Struct, frozen=True, kw_only=True):
    """What a node may draw: its parts, or a published figure of the node or of its rack."""

    cpu: Watts | None = None
    """one processor"""
    accelerator: Watts | None = None
    """one accelerator"""
    combined: Watts | None = None
    """all processors and accelerators of a node, where they are published as one"""
    scale_up: ScaleUp = ScaleUp()
    node: Watts | None = None
    """a complete node"""
    rack: Watts | None = None
    """a complete rack, of which the system is a part"""
    rack_nodes: int | None = None
    """in that rack"""


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of accelerator in a node."""

    accelerator_model_name: str = ""
    accelerators_per_node: _Count = 0
    accelerator_memory_capacity: str = ""
    accelerator_memory_type: str = ""
    accelerator_interconnect: str = ""
    accelerator_host_interconnect: str = ""


class NodeType(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are all alike."""

    number_of_nodes: _AtLeastOne = 1
    host_processor_model_name: str = ""
    host_processors_per_node: _Count = 0
    host_processor_core_count: _Count = 0
    """of one processor"""
    host_memory_capacity: str = ""
    host_memory_configuration: str = ""
    accelerator_info: tuple[Accelerator, ...] = ()
    host_network_card_count: str = ""
    host_networking: str = ""
    host_storage_capacity: str = ""
    host_storage_type: str = ""
    other_hardware: str = ""
    hw_notes: str = ""
    cooling: Literal["air", "liquid", ""] = ""
    inference_backend: str = ""
    """empty: the engine that the servers reported"""
    driver: str = ""
    operating_system: str = ""
    filesystem: str = ""
    container_link: str = ""
    other_software_stack: str = ""
    sw_notes: str = ""
    power: NodePower = NodePower()

    @property
    def accelerators(self) -> int:
        """In one node."""
        return sum(one.accelerators_per_node for one in self.accelerator_info)


class Switches(msgspec.Struct, frozen=True, kw_only=True):
    """Switches of one model between the nodes."""

    model: str
    count: _AtLeastOne
    bandwidth_tbps: _Amount
    power: Watts | None = None
    """of one switch"""


class ScaleOut(msgspec.Struct, frozen=True, kw_only=True):
    """The network between the nodes, for a system with more than one."""

    cabling: Literal["passive", "active_optical"]
    nics_per_node: _Count
    nic_gbps: _Amount
    nic: Watts | None = None
    """one adapter"""
    switches: tuple[Switches, ...] = ()


class System(msgspec.Struct, frozen=True, kw_only=True):
    """The system as a whole."""

    system_name: str = ""
    shortened_system_name: str = ""
    system_category: str = ""
    system_availability_status: Literal["Available", "Preview", "RDI", ""] = ""
    availability_url: str = ""
    target_availability_date: str = ""
    system_size: str = ""
    serving_framework: str = ""
    """empty: the engine that the servers reported"""
    max_supported_concurrency: int | None = None
    """C_max; None: the highest fixed concurrency"""
    c_min_override: int | None = None
    network_topology: str = ""
    """between client and servers, and between nodes"""
    notes: str = ""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The model that was served."""

    model_name: str = ""
    """empty: that of the runs"""
    model_precision: str = ""
    link_to_model: str = ""
    link_to_model_transformation: str = ""
    model_notes: str = ""


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """The performance dataset."""

    dataset_name: str = ""
    """empty: that of the benchmark"""
    dataset_link: str = ""


class Parallelism(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is spread over accelerators; in [points.r64] for one point."""

    tensor_parallel: _AtLeastOne | None = None
    pipeline_parallel: _AtLeastOne | None = None
    expert_parallel: _AtLeastOne | None = None
    data_parallel: _AtLeastOne | None = None
    disaggregated: bool | None = None
    batch: int | None = None
    nodes_used: dict[str, int] | None = None
    """by the number of the node type, from 1; None: all that are provisioned"""
    dp_shortfall: str = ""
    """why fewer replicas ran than fit"""


class Drafter(msgspec.Struct, frozen=True, kw_only=True):
    """A drafter of speculative decoding, as the approved list identifies it."""

    model_id: str = ""
    weight_checksum: str = ""
    target_checksum: str = ""
    configuration: dict[str, Any] = {}


class WarmUpTable(WarmUp, frozen=True, kw_only=True):
    """The warm-up of the official client's runs, whose folders do not show it."""

    logs_retained: bool = False
    link_logs: str = ""


class Docs(msgspec.Struct, frozen=True, kw_only=True):
    """Files to take over, paths from the TOML's folder."""

    readme: Path | None = None
    """how to build and start the servers; None: a skeleton"""
    software_disclosure: Path | None = None
    """None: a skeleton with the versions that the servers reported"""
    calibration: Path | None = None
    server_configs: tuple[Path, ...] = ()
    """of every point"""


class SystemFile(msgspec.Struct, frozen=True, kw_only=True):
    """The complete TOML."""

    submitter: str
    """becomes a folder's name, as the next two"""
    submission_id: str
    system_id: str
    implementation: str
    """becomes the folder src/<implementation>"""
    division: Literal["Standardized", "Serviced", "RDI"]
    target_cohort: str = ""
    """empty: the one that this client's runs were asked for"""
    system: System = System()
    node_types: tuple[NodeType, ...] = ()
    scale_out: ScaleOut | None = None
    model: Model = Model()
    dataset: Dataset = Dataset()
    parallelism: Parallelism = Parallelism()
    points: dict[str, Parallelism] = {}
    """what differs at a point, by its folder's name"""
    drafter: Drafter | None = None
    warm_up: WarmUpTable | None = None
    docs: Docs = Docs()

    def parallelism_of(self, point: str) -> Parallelism:
        """That of one point."""
        own = self.points.get(point, Parallelism())
        given = {
            name: value for name, value in msgspec.structs.asdict(own).items() if value not in (None, "")
        }
        return msgspec.structs.replace(self.parallelism, **given)

    @property
    def nodes(self) -> int:
        """Of all types."""
        return sum(node.number_of_nodes for node in self.node_types)

    @property
    def cooling(self) -> Literal["air", "liquid"] | None:
        """Of the whole system: air, the larger overhead, where nodes differ."""
        found = {node.cooling for node in self.node_types} - {""}
        if not found:
            return None
        return "air" if "air" in found else "liquid"


def read_system(path: Path) -> SystemFile:
    """Read the TOML and check what would break files or folders. Raises ConfigError."""
    source = f"--system {path}"
    found = read_struct(source, path, SystemFile, f"start from a copy of {EXAMPLE}")
    require_folder_names(source, found, ("submitter", "submission_id", "system_id", "implementation"))
    for wrong in _wrong(found):
        raise ConfigError(f"{source}: {wrong}")
    docs = _from_folder(found.docs, path.parent)
    for one in filter(None, (docs.readme, docs.software_disclosure, docs.calibration, *docs.server_configs)):
        document(one)
    return msgspec.structs.replace(found, docs=docs)


def document(path: Path) -> bytes:
    """The content of a file that [docs] names. Raises ConfigError."""
    try:
        return path.read_bytes()
    except OSError as error:
        remedy = "correct its path in [docs], which begins at the TOML's folder, or remove it there"
        raise ConfigError(f"--system TOML: [docs] {path}: {refused(error, remedy)}") from None


def _wrong(found: SystemFile) -> Iterator[str]:
    short = found.system.shortened_system_name
    if len(short) > LONGEST_SHORT_NAME:
        yield (
            f"[system]: shortened_system_name {short!r} has {len(short)} characters, expected at most "
            f"{LONGEST_SHORT_NAME}"
        )
    if "/" in found.system.system_name:
        yield (
            f"[system]: system_name {found.system.system_name!r} has a slash, expected none: the official "
            "upload makes a folder of it"
        )
    if (day := found.system.target_availability_date) and not _is_date(day):
        yield f"[system]: target_availability_date is {day!r}, expected a day such as 2027-03-01"
    if found.warm_up is not None:
        yield from (f"[warm_up]: {wrong}" for wrong in _wrong_warm_up(found.warm_up))
    for place, source in _sources(found):
        if not _SOURCE.fullmatch(source):
            yield (
                f"{place}: source is {source!r}, expected a URL with https://, or D.1 to D.4 for a default "
                "of the rules' Appendix D"
            )
    for point, one in {"": found.parallelism, **found.points}.items():
        place = f"[points.{point}]" if point else "[parallelism]"
        types = {str(number): node for number, node in enumerate(found.node_types, 1)}
        for number, nodes in (one.nodes_used or {}).items():
            most = types[number].number_of_nodes if number in types else 0
            if not 1 <= nodes <= most:
                yield (
                    f"{place}: nodes_used has {nodes} of node type {number}, which has {most}; expected 1 to "
                    "number_of_nodes"
                )


def _wrong_warm_up(stated: WarmUp) -> Iterator[str]:
    """What the official checker refuses in point.yaml (§6.3.3)."""
    if not 0 <= stated.duration_s <= _LONGEST_WARM_UP_S:
        yield f"duration_s is {stated.duration_s}, expected 0 to {_LONGEST_WARM_UP_S}, a day"
    if not 0 <= stated.requests_completed <= stated.requests_issued:
        yield (
            f"requests_completed is {stated.requests_completed}, expected 0 to requests_issued, "
            f"{stated.requests_issued}"
        )
    least = 1 if stated.duration_s or stated.requests_issued else 0
    if stated.concurrency < least:
        yield f"concurrency is {stated.concurrency}, expected the requests in flight of the warm-up"
    if not stated.data_source:
        yield "data_source is empty, expected where its requests come from"


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and date.fromisoformat(text))
    except ValueError:
        return False


def _sources(found: SystemFile) -> Iterator[tuple[str, str]]:
    """The place and the source of each power figure."""
    for number, node in enumerate(found.node_types, 1):
        place, power = f"[[node_types]] {number}: power", node.power
        names = ("cpu", "accelerator", "combined", "node", "rack")
        figures = {name: getattr(power, name) for name in names} | {"scale_up.switch": power.scale_up.switch}
        yield from ((f"{place}.{name}", one.source) for name, one in figures.items() if one is not None)
        if power.scale_up.pj_per_bit is not None:
            yield f"{place}.scale_up", power.scale_up.source
    if found.scale_out is not None:
        switches = {f"switch {one.model}": one.power for one in found.scale_out.switches}
        for name, figure in {"nic": found.scale_out.nic, **switches}.items():
            if figure is not None:
                yield f"[scale_out] {name}", figure.source


def _from_folder(docs: Docs, folder: Path) -> Docs:
    names = ("readme", "software_disclosure", "calibration")
    given = {name: folder / one for name in names if (one := getattr(docs, name)) is not None}
    configs = tuple(folder / one for one in docs.server_configs)
    return msgspec.structs.replace(docs, **given, server_configs=configs)
