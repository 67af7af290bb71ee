"""The options of run_eval.py and its command line. Imports stay light, so that ``--help`` is fast."""

from pathlib import Path

from harness.cli.door import called
from harness.cli.flags import add_groups, flag, options, read
from harness.cli.parser import SIGNAL_CODES, Parser, Synonym
from harness.config.other_flags import ELSEWHERE, SYNONYMS
from harness.config.run_options import (
    FAILURES,
    GENERATION,
    SERVER,
    ClientOptions,
    parsed,
    restart_flag,
    results_flag,
    resume_flag,
)

_SYNONYMS = SYNONYMS | {"--total-sample-count": Synonym("--max-samples")}
_NEEDLESS = {"--async": "requests are always in flight side by side"}
_GROUPS = {
    "rows": ("benchmark", "round", "input_file", "max_samples", "skip_samples"),
    "output": ("output_file", "output_dir", "resume", "restart"),
    "generation": GENERATION,
    "server": SERVER,
    "deadlines and failures": FAILURES,
    "run": ("metrics_port", "dry_run", "log_level"),
}


@options
class EvalOptions(ClientOptions):
    """The options of run_eval.py."""

    max_samples: int | None = flag(
        "send only N rows (default: all)", default=None, old=("--num-samples",), metavar="N"
    )
    skip_samples: int = flag("leave out the first N rows (default: %(default)d)", default=0, metavar="N")
    output_file: Path | None = flag(
        ".parquet, or .pkl for a pandas pickle (default: DIR/run_eval/NAME_YYYYmmdd_HHMMSS of "
        "--results, in the input's format)",
        "--output",
        "-o",
        default=None,
        old=("--output-file",),
        metavar="FILE",
    )
    output_dir: Path | None = results_flag("used without --output")
    resume: bool = resume_flag("run of the file")
    restart: bool = restart_flag("run", of_file=True)


def build_parser() -> Parser:
    """All flags."""
    parser = Parser(
        prog=called("run_eval.py"),
        synonyms=_SYNONYMS,
        needless=_NEEDLESS,
        elsewhere=ELSEWHERE,
        description="Send every row of a dataset to a running server, without LoadGen, and write the rows "
        "with their answers. Sampling and lengths are those of the benchmark's accuracy run.",
        epilog="Exit codes: 0 every row is answered, 2 usage, config or dataset, 3 server, 4 failed rows or "
        f"ended early, {SIGNAL_CODES}.",
    )
    add_groups(parser, EvalOptions, _GROUPS)
    return parser


def parse_options(argv: list[str]) -> EvalOptions:
    """Parse flags; argparse exits with code 2 and one line on wrong usage."""
    return read(EvalOptions, parsed(build_parser(), argv))
