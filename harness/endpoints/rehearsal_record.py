"""rehearsal.json: the plan of a rehearsal and what all its points share; whether a repeated one continues."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness.config.generation import SamplingParameters
from harness.endpoints.curve import Curve
from harness.endpoints.run_folder import POINT_RUN, REHEARSAL, RUNS
from harness.json_files import write_json
from harness.peak.ladder.steps import NOT_A_RESULT
from harness.record.provenance import read_own


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """A rehearsal as rehearsal.json has it. Its points are in their run folders."""

    label: str = NOT_A_RESULT
    curve: Curve
    input_file: str
    dataset_sha256: str
    accuracy_file: str | None = None
    accuracy_sha256: str | None = None
    tokenizer_sha256: str | None = None
    """of the one that counts tokens; None: gpt-oss's, which is built in"""
    parameters: SamplingParameters
    """of the performance points"""
    engine: str
    """of the first server, as are the next two"""
    version: str | None = None
    model: str | None = None
    started: datetime

    def differences(self, other: "Rehearsal") -> Iterator[str]:
        """What keeps the points of ``self`` from being those of ``other``, ``name: mine, not theirs``."""
        names = ("dataset_sha256", "accuracy_sha256", "tokenizer_sha256", "engine", "version", "model")
        yield from _different(self, other, names)
        yield from _different(self.parameters, other.parameters, SamplingParameters.__struct_fields__)
        # The cohort of a submission changes no request.
        mine = replace(self.curve, seeds=replace(self.curve.seeds, cohort=other.curve.seeds.cohort))
        yield from _different(mine, other.curve, Curve.__struct_fields__)


def _different(mine: object, theirs: object, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        one, other = getattr(mine, name), getattr(theirs, name)
        if one != other:
            yield name if isinstance(one, tuple) else f"{name}: {one}, not {other}"


def write_rehearsal(folder: Path, rehearsal: Rehearsal) -> None:
    """Write rehearsal.json, complete or not at all. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / REHEARSAL, rehearsal)


def read_rehearsal(folder: Path) -> Rehearsal | None:
    """The rehearsal of a folder, None where there is none. Raises ConfigError for a damaged file."""
    path = folder / REHEARSAL
    if not path.exists():
        return None
    points = (folder / RUNS).glob(f"*/{POINT_RUN}")
    return read_own(path, Rehearsal, "--restart moves the folder aside", points)
