"""Provisioned power: system_power.json, and the kW of a point. Rules §4.5 and their Appendix E.

A system's power is that of its parts with 30 % (liquid) or 50 % (air) on top, plus published figures of
nodes and the switches between nodes, which have their overhead within. A point is charged for the nodes
that it uses.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from harness.endpoints.tree.system_file import NodeType, ScaleUp, SystemFile, Watts
from harness.json_files import Json

_OVERHEAD = {"liquid": 0.30, "air": 0.50}
_TBPS_TOLERANCE = 1e-6  # of sums in another order
_BITS = 8.0  # terabytes per second times pJ per bit


class Power(msgspec.Struct):
    """The sums, in W, before any rounding."""

    overhead: float
    shares: list[tuple[int, float]] = []
    """nodes of each type, and what they draw with their overhead"""
    major: float = 0.0
    published: float = 0.0
    switches: float = 0.0
    gaps: list[str] = []
    """figures without which there is no sum"""

    @property
    def total(self) -> float:
        """Of the whole system."""
        return self.major * (1 + self.overhead) + self.published + self.switches

    def kw(self, nodes_used: Mapping[str, int] | None) -> float | None:
        """Of a point that uses these nodes of each type, None for all; None where a figure lacks."""
        if self.gaps:
            return None
        if not nodes_used:
            return round(self.total / 1000, 2)
        used = [
            nodes_used.get(str(number), provisioned) for number, (provisioned, _) in enumerate(self.shares, 1)
        ]
        every = sum(provisioned for provisioned, _ in self.shares)
        watts = sum(
            share * count / provisioned for count, (provisioned, share) in zip(used, self.shares, strict=True)
        )
        return round((watts + self.switches * sum(used) / every) / 1000, 2)


def power_of(system: SystemFile) -> Power:
    """The power of a system."""
    cooling = system.cooling
    found = Power(overhead=_OVERHEAD[cooling or "air"])
    if cooling is None:
        found.gaps.append('[[node_types]] has no cooling; write "air" or "liquid"')
    if not system.node_types:
        found.gaps.append("there is no [[node_types]]; write one for each kind of node")
    nics = _nic_watts(system, found)
    for number, node in enumerate(system.node_types, 1):
        _add(found, number, node, nics)
    fabric = system.scale_out
    for switch in fabric.switches if fabric else ():
        found.switches += switch.count * _watts(
            found, switch.power, f"[scale_out] switch {switch.model}: power"
        )
    found.gaps += _network_gaps(system)
    return found


def _network_gaps(system: SystemFile) -> Iterator[str]:
    """What keeps the network between the nodes from being one."""
    nodes, fabric = system.nodes, system.scale_out
    if fabric is not None:
        offered = sum(switch.count * switch.bandwidth_tbps for switch in fabric.switches)
        if offered < (needed := _needed_tbps(system)) - _TBPS_TOLERANCE:
            yield f"[scale_out] switches have {offered:g} Tb/s, the adapters {needed:g}; write every switch"
    elif nodes > 1 and not any(_may_span(node) for node in system.node_types):
        yield f"[scale_out] is missing, and no scale_up connects the {nodes} nodes; write the one that does"


def _needed_tbps(system: SystemFile) -> float:
    """Of all adapters between the nodes."""
    fabric = system.scale_out
    return system.nodes * fabric.nics_per_node * fabric.nic_gbps / 1000 if fabric else 0.0


def _may_span(node: NodeType) -> bool:
    """Whether its power may hold a network that leaves the node."""
    power = node.power
    up = power.scale_up
    return bool(power.node or power.rack or up.switches or up.bandwidth_tbps is not None)


def system_power(system: SystemFile, power: Power) -> Json:
    """system_power.json, in the form that the official checker reads."""
    found: Json = {
        "system_desc_id": system.system_id,
        "cooling": system.cooling or "",
        "node_sets": [_node_set(number, node) for number, node in enumerate(system.node_types, 1)],
        "scale_out": _scale_out(system),
    }
    if not power.gaps:
        found["computed"] = {
            "major_components_w": power.major,
            "overhead_fraction": power.overhead,
            "other_components_w": power.major * power.overhead,
            "published_node_power_w": power.published,
            "scale_out_switch_power_w": power.switches,
            "total_system_power_w": power.total,
        }
        found["provisioned_power_kw"] = power.kw(None)
    return found


def _add(found: Power, number: int, node: NodeType, nics: float) -> None:
    given, count = node.power, node.number_of_nodes
    place = f"[[node_types]] {number}: power"
    if given.node is not None:
        share = count * given.node.watts
        found.published += share
    elif given.rack is not None:
        if not given.rack_nodes or given.rack_nodes <= count:
            text = f"{place}: rack_nodes is {given.rack_nodes}, expected more than {count}"
            found.gaps.append(f"{text}; write the number in the complete rack, or the node's figure as node")
            return
        share = given.rack.watts * count / given.rack_nodes
        found.published += share
    else:
        parts = count * (_parts(found, node, place) + nics)
        found.major += parts
        share = parts * (1 + found.overhead)
    found.shares.append((count, share))


def _parts(found: Power, node: NodeType, place: str) -> float:
    """W of the processors, accelerators and their network in one node."""
    given = node.power
    if given.combined is not None:
        compute = given.combined.watts
    else:
        compute = node.host_processors_per_node * _watts(found, given.cpu, f"{place}.cpu")
        compute += node.accelerators * _watts(found, given.accelerator, f"{place}.accelerator")
    return compute + _scale_up_watts(found, given.scale_up, place)


def _scale_up_watts(found: Power, up: ScaleUp, place: str) -> float:
    if up.bandwidth_tbps is not None:
        if up.pj_per_bit is None:
            found.gaps.append(f"{place}.scale_up has no pj_per_bit; write it with its source")
        return up.bandwidth_tbps * _BITS * (up.pj_per_bit or 0.0)
    return up.switches * _watts(found, up.switch, f"{place}.scale_up.switch") if up.switches else 0.0


def _nic_watts(system: SystemFile, found: Power) -> float:
    """W of the adapters in one node that is built from its parts."""
    fabric = system.scale_out
    return fabric.nics_per_node * _watts(found, fabric.nic, "[scale_out] nic") if fabric else 0.0


def _watts(found: Power, given: Watts | None, place: str) -> float:
    if given is None:
        found.gaps.append(f'{place} is missing; write {{ watts = 700, source = "https://…" }}')
        return 0.0
    return given.watts


def _sourced(given: Watts | None, unit: str = "value_w") -> Json | None:
    if given is None:
        return None
    kind = "mlc_default" if given.source.startswith("D.") else given.source_type
    return {unit: given.watts, "source_type": kind, "source": given.source}


def _known(**values: Any) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def _node_set(number: int, node: NodeType) -> Json:
    given = node.power
    found: Json = {
        "node_set_id": number,
        "system_node_ensemble_id": number,
        "nodes_provisioned": node.number_of_nodes,
    }
    if given.node is not None:
        return found | {"power_method": "published_system", "published_power": _sourced(given.node)}
    if given.rack is not None:
        return found | {
            "power_method": "node_scaling",
            "published_power": _sourced(given.rack),
            "nodes_in_published_rack": given.rack_nodes,
        }
    return found | {"power_method": "component_sum", "components": _components(node)}


def _components(node: NodeType) -> Json:
    given = node.power
    up = _scale_up(given.scale_up)
    if given.combined is not None:
        counts: Json = {"combined_cpu_accelerator": _sourced(given.combined)}
        counts["accelerator"] = {"count_per_node": node.accelerators}
        return counts | {"scale_up_network": up}
    names = " / ".join(one.accelerator_model_name for one in node.accelerator_info)
    return {
        "cpu": _known(
            model=node.host_processor_model_name or None,
            count_per_node=node.host_processors_per_node,
            tdp_per_unit=_sourced(given.cpu),
        ),
        "accelerator": _known(
            model=names or None,
            count_per_node=node.accelerators,
            tdp_per_unit=_sourced(given.accelerator),
        ),
        "scale_up_network": up,
    }


def _scale_up(up: ScaleUp) -> Json:
    if up.bandwidth_tbps is not None:
        energy = None
        if up.pj_per_bit is not None:
            energy = _sourced(Watts(watts=up.pj_per_bit, source=up.source), "value_pj")
        return {
            "method": "bandwidth_estimate",
            **_known(aggregate_bandwidth_tbps=up.bandwidth_tbps, energy_per_bit_pj=energy),
        }
    if not up.switches:
        return {"method": "none"}
    return {
        "method": "declared_tdp",
        **_known(switch_count=up.switches, tdp_per_switch=_sourced(up.switch)),
    }


def _scale_out(system: SystemFile) -> Json:
    fabric = system.scale_out
    if fabric is None:
        return {"present": False}
    counted = any(node.power.node is None and node.power.rack is None for node in system.node_types)
    return {
        "present": True,
        "cabling": fabric.cabling,
        "required_bandwidth_tbps": _needed_tbps(system),
        "nics": _known(
            count_per_node=fabric.nics_per_node,
            bandwidth_per_nic_gbps=fabric.nic_gbps,
            counted=counted,
            tdp_per_nic=_sourced(fabric.nic),
        ),
        "switches": [
            _known(
                model=one.model,
                count=one.count,
                bandwidth_tbps=one.bandwidth_tbps,
                power_per_switch=_sourced(one.power),
            )
            for one in fabric.switches
        ],
    }
