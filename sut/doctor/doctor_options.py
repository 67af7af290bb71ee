"""The flags of ``./mlperf doctor``. Imports stay light, so that ``--help`` is fast."""

from collections.abc import Sequence
from pathlib import Path

from harness.cli.door import called
from harness.cli.flags import add_flags, flag, options, read
from harness.cli.parser import SIGNAL_CODES, Parser
from harness.config.choices import benchmark_flag, results_folder
from harness.config.run_options import (
    Backend,
    backend_flag,
    ca_file_flag,
    parsed,
    results_flag,
    server_url_flag,
)

PROGRAM = "sut.doctor"
_FLAGS = (
    "benchmark",
    "backend",
    "server_url",
    "ca_file",
    "max_concurrency",
    "output_dir",
    "datasets",
    "json",
)


@options
class DoctorOptions:
    """What is looked at. Servers are asked only where their URLs are given."""

    benchmark: str = benchmark_flag()
    backend: Backend = backend_flag()
    server_url: Sequence[str] = server_url_flag("servers are not asked")
    ca_file: Path | None = ca_file_flag()
    max_concurrency: int | None = flag(
        "requests in flight for which open files and ports must suffice", default=None, metavar="N"
    )
    output_dir: Path | None = results_flag("its disk is looked at")
    datasets: bool = flag("leave out the checksums of datasets", default=True)
    json: bool = flag("print one JSON document in place of lines", default=False)
    warnings: tuple[str, ...] = ()
    """about the command line"""

    @property
    def results(self) -> Path:
        """The folder of the benchmark's runs."""
        return results_folder(self.output_dir, self.benchmark)


def build_parser() -> Parser:
    """All flags."""
    parser = Parser(
        prog=called(PROGRAM),
        description="Look at this node, and at the servers that are named, before a run costs hours.",
        epilog="Nothing needs root. Exit codes: 0 no error, 2 an error of this machine or its files, 3 only "
        f"servers have errors, {SIGNAL_CODES}.",
    )
    add_flags(parser, DoctorOptions, _FLAGS)
    return parser


def parse_options(argv: list[str]) -> DoctorOptions:
    """Parse the flags; argparse exits with code 2 on wrong usage."""
    return read(DoctorOptions, parsed(build_parser(), argv))
