"""src/ and docs/ of a tree: the submitter's own files, or skeletons with what is known."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.endpoints.tree.point_files import CurveFacts
from harness.endpoints.tree.run_facts import RunFacts, servers_of_points
from harness.endpoints.tree.system_file import document
from harness.text import aligned

README = "README.md"
DISCLOSURE = "software_disclosure.md"
CALIBRATION = "calibration.adoc"
NETWORK = "network.md"
TO_WRITE = "To be written"


def documents(runs: Sequence[RunFacts], of: CurveFacts) -> dict[str, bytes]:
    """Files below the submission's folder. Raises ConfigError where one of the submitter's cannot be read."""
    given = of.system.docs
    found = {
        f"src/{of.system.implementation}/{README}": _own(given.readme, _readme(runs, of)),
        f"docs/{DISCLOSURE}": _own(given.software_disclosure, _disclosure(runs, of)),
        f"docs/{NETWORK}": "\n".join(_network(runs, of)).encode(),
    }
    if given.calibration is not None:
        found[f"docs/{CALIBRATION}"] = document(given.calibration)
    return found


def unwritten(of: CurveFacts) -> Iterator[str]:
    """Skeletons that the submitter has to complete."""
    given = of.system.docs
    if given.readme is None:
        yield (
            f"src/{of.system.implementation}/{README} is a skeleton; write how to build and start the "
            "servers, and name the file as [docs] readme"
        )
    if given.software_disclosure is None:
        yield f"docs/{DISCLOSURE} is a skeleton; complete it and name the file as [docs] software_disclosure"


def _own(path: Path | None, skeleton: Iterator[str]) -> bytes:
    return "\n".join(skeleton).encode() if path is None else document(path)


def _head(title: str, of: CurveFacts) -> Iterator[str]:
    yield f"# {title}"
    yield ""
    if of.label:
        yield f"This is {of.label}: it belongs to a rehearsal."
        yield ""


def _readme(runs: Sequence[RunFacts], of: CurveFacts) -> Iterator[str]:
    yield from _head(of.system.implementation, of)
    yield f"{TO_WRITE}: how to build the software and to start the servers."
    yield ""
    commands = {
        one.run.provenance.server_command for one in runs if one.run and one.run.provenance.server_command
    }
    for command in sorted(commands):
        yield from ("The servers were started with:", "", "```", command, "```", "")
    shown = next((one.name for one in runs if not one.dedicated), runs[0].name)
    yield f"Each point is repeated from the config.yaml in its folder, such as `{shown}/config.yaml`."
    yield ""


def _disclosure(runs: Sequence[RunFacts], of: CurveFacts) -> Iterator[str]:
    yield from _head("Software", of)
    yield f"{TO_WRITE}: all software in use, its versions and licences."
    yield ""
    servers = {(server.software, server.model_path or server.names) for server in servers_of_points(runs)}
    for engine, model in sorted(servers):
        yield f"- {engine}: {model}"
    for number, node in enumerate(of.system.node_types, 1):
        stack = (node.operating_system, node.driver, node.inference_backend, node.other_software_stack)
        yield f"- node type {number}: {', '.join(filter(None, stack)) or 'unknown'}"
    yield ""


def _network(runs: Sequence[RunFacts], of: CurveFacts) -> Iterator[str]:
    """Rules §2.1.1: topology and measured latency of the idle network."""
    yield from _head("Network", of)
    yield f"Topology: {of.system.system.network_topology or f'{TO_WRITE} (network_topology in [system])'}"
    yield ""
    measured = [(one.name, one.run.network) for one in runs if one.run is not None and one.run.network]
    if not measured:
        yield "The latency of the idle network was not measured."
        yield ""
        return
    yield "Round trips of a small request without load, before each point:"
    yield ""
    rows = [("point", "round trips", "min (µs)", "p50 (µs)")]
    rows += [
        (name, str(one.count), f"{one.min_ns / 1000:.1f}", f"{one.p50_ns / 1000:.1f}")
        for name, one in measured
    ]
    yield from (f"    {line}" for line in aligned(rows, "<>"))
    yield ""
