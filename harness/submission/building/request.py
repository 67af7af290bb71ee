"""What is to be built, and from what."""

from pathlib import Path

import msgspec

from harness.config.benchmark import Benchmark
from harness.config.scenario import Scenario
from harness.submission.building.descriptions import SubmitterInfo
from harness.submission.tree.layout import REHEARSAL, kept_beside
from harness.submission.tree.round_rules import RoundRules


class BuildRequest(msgspec.Struct, frozen=True):
    """The folder to build, and what it is built from."""

    benchmarks: tuple[Benchmark, ...]
    rules: RoundRules
    info: SubmitterInfo
    results: Path
    """the folder of the runs"""
    output: Path
    only: tuple[Scenario, ...]
    """scenarios to submit; empty for all that are found"""
    user_conf: Path | None
    """takes the place of the file that each performance run used"""
    force: bool
    """replace files that were not built here, or were changed since"""
    servers_moved: bool = False
    """accept runs of one scenario that name the same servers by different addresses"""
    rehearsal: bool = False
    """take runs that are not official, and write a tree that no checker takes for a submission"""

    @property
    def division(self) -> str:
        """The name of the division's folder."""
        return self.info.division + (REHEARSAL if self.rehearsal else "")

    @property
    def is_closed(self) -> bool:
        """Whether scenarios and tests are those of the closed division."""
        return self.info.division == "closed"

    @property
    def org(self) -> Path:
        """``<division>/<org>``, in the tree and in the folder of kept files."""
        return Path(self.division, self.info.submitter)

    @property
    def system_folder(self) -> Path:
        """The folder of the system's benchmarks."""
        return self.org / "results" / self.info.system_id

    def runs_folder(self, benchmark: Benchmark) -> Path:
        """The folder of a benchmark's scenarios."""
        return self.system_folder / benchmark.name

    @property
    def system_file(self) -> Path:
        """The system description."""
        return self.org / "systems" / f"{self.info.system_id}.json"

    @property
    def folders(self) -> dict[str, str]:
        """The names of folders that the system description repeats."""
        return {"division": self.division, "submitter": self.info.submitter}

    @property
    def kept(self) -> Path:
        """The folder of the files that are kept and not submitted."""
        return kept_beside(self.output)
