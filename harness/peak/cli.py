"""The command line of find_peak.py. Imports stay light, so that ``--help`` is fast."""

import argparse
from dataclasses import MISSING, fields

from harness.cli import run_flags
from harness.cli.parser import SIGNAL_CODES, Parser
from harness.config.run_options import ClientOptions
from harness.config.scenario import Scenario
from harness.peak.peak_options import LadderOptions, SearchOptions
from harness.peak.search.flags import add_search, duration_s

_SYNONYMS = {"--dataset-path": run_flags.SYNONYMS["--dataset-path"]}


def build_parser() -> Parser:
    """All flags of all commands."""
    parser = Parser(
        prog="find_peak.py",
        description="Find the load that servers can carry under a scenario's latency limits.",
        epilog="Exit codes: 0 done, 2 usage, config or dataset, 3 server, 4 failed requests or ended early, "
        f"{SIGNAL_CODES}.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_ladder(
        commands.add_parser(
            "ladder",
            synonyms=_SYNONYMS,
            help="fixed numbers of requests in flight, without LoadGen: not an MLPerf result",
        )
    )
    _add_search(
        commands.add_parser(
            "search",
            synonyms=run_flags.SYNONYMS,
            help="the highest target_qps that passes, by runs of official length",
        )
    )
    return parser


def _add_search(parser: Parser) -> None:
    add_search(parser)
    add_client(parser)
    parser.set_defaults(**defaults(SearchOptions))


def _add_ladder(parser: Parser) -> None:
    steps = parser.add_argument_group("steps")
    run_flags.add_scenario(steps, scenarios=(Scenario.SERVER, Scenario.INTERACTIVE))
    run_flags.add_input_file(steps)
    steps.add_argument(
        "--concurrency",
        type=_numbers,
        metavar="N,N,...",
        help="requests in flight of each step, ascending, over all replicas (default: doubled up to what the "
        "servers run at once)",
    )
    steps.add_argument(
        "--seconds",
        type=duration_s,
        metavar="S",
        help="time over which each step is measured, after its filling (default: %(default)g)",
    )
    run_flags.add_generation(parser.add_argument_group("generation"))
    add_client(parser, max_concurrency=False)
    parser.set_defaults(**defaults(LadderOptions))


def add_client(parser: Parser, *, max_concurrency: bool = True) -> None:
    """Servers, deadlines, output."""
    run_flags.add_server(parser.add_argument_group("server"), max_concurrency=max_concurrency)
    run_flags.add_failures(parser.add_argument_group("deadlines and failures"))
    run = parser.add_argument_group("run")
    run_flags.add_output_dir(run, "DIR/peak/<scenario>/")
    run_flags.add_dry_run(run)


def defaults(options: type[ClientOptions]) -> dict[str, object]:
    """The defaults of a command's flags; the environment may name a backend."""
    own = {field.name: field.default for field in fields(options) if field.default is not MISSING}
    return own | {name: run_flags.DEFAULTS[name] for name in ("server_url", "backend")}


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 64,128,256") from None


Options = LadderOptions | SearchOptions


def parse_options(argv: list[str] | None = None) -> Options:
    """Parse the flags of one command; argparse exits with code 2 and one line on wrong usage."""
    given = run_flags.parsed(build_parser(), argv)
    given |= {"server_url": given["server_url"] or ()}
    match given.pop("command"):
        case "search":
            return SearchOptions(**given)
        case _:
            return LadderOptions(**given)
