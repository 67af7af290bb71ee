"""The options of a campaign and its command line. Imports stay light, so that ``--help`` is fast."""

import argparse
from pathlib import Path

from harness.cli.door import called
from harness.cli.flags import add_flags, flag, options, read
from harness.cli.parser import SIGNAL_CODES, Parser

PROGRAM = "harness.campaign"
STATUS = "status"
_EPILOG = (
    "The same command continues after Ctrl-C, a kill or a restart of the machine, and says so when all is "
    f"done. 'campaign {STATUS} FILE' prints the table of steps. Exit codes: 0 all done, 2 usage, config or "
    "dataset, 3 server, 4 a run is lost or failed, 5 a score, test or check not passed, "
    f"{SIGNAL_CODES}."
)


@options
class CampaignOptions:
    """One campaign. ``status`` only prints the table of steps."""

    file: Path = flag(
        "TOML of the submission with its servers, benchmarks and scenarios: see "
        "configs/submission/example.toml",
        "file",
        metavar="FILE",
    )
    rehearsal: bool = flag(
        "the steps but trial and search, in minutes: embedded engine, sample datasets, folders of their own; "
        "no submission can use the results",
        default=False,
    )
    restart: tuple[str, ...] = flag(
        "begin a step anew, such as gpt-oss-120b/server/accuracy, or all of gpt-oss-120b/server; its "
        "earlier results are moved aside",
        default=(),
        metavar="STEP",
    )
    dry_run: bool = flag(
        "print the steps with their commands and what the file still lacks, and start nothing", default=False
    )
    status: bool = False


def build_parser() -> argparse.ArgumentParser:
    """All flags."""
    parser = Parser(
        prog=called(PROGRAM),
        description="Run everything that a submission needs from one file, then build and check its folder.",
        epilog=_EPILOG,
        elsewhere={f"--{STATUS}": f"it is a word, no flag: write {called(PROGRAM)} {STATUS} FILE"},
    )
    add_flags(parser, CampaignOptions, ("file", "rehearsal", "restart", "dry_run"))
    return parser


def parse_options(argv: list[str]) -> CampaignOptions:
    """Parse the flags; argparse exits with code 2 on wrong usage."""
    words, status = [*argv], STATUS in argv
    if status:
        words.remove(STATUS)
    parser = build_parser()
    given, more = parser.parse_known_args(words)
    if more:
        # Of "statuss my.toml" the first word was read as the file.
        unknown = next((word for word in (str(given.file), *more) if not Path(word).is_file()), more[0])
        parser.error(f"unexpected {unknown!a}; expected FILE, or {STATUS} FILE")
    if status and given.restart:
        parser.error(f"--restart {given.restart[0]}: {STATUS} only prints the steps; omit one of the two")
    return read(CampaignOptions, vars(given) | {"status": status})
