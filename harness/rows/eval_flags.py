"""The command line of run_eval.py. Imports stay light, so that ``--help`` is fast."""

import argparse
from dataclasses import MISSING, fields

from harness.cli import run_flags
from harness.cli.parser import SIGNAL_CODES, Parser, Synonym, add_benchmark, path
from harness.rows.eval_options import EvalOptions

_DEFAULTS = {field.name: field.default for field in fields(EvalOptions) if field.default is not MISSING}
_DEFAULTS |= {name: run_flags.DEFAULTS[name] for name in ("server_url", "backend")}

SYNONYMS = {
    "--dataset-path": Synonym("--input-file"),
    "--max-samples": Synonym("--num-samples"),
    "--total-sample-count": Synonym("--num-samples"),
}


def build_parser() -> Parser:
    """All flags; their defaults are those of EvalOptions."""
    parser = Parser(
        prog="run_eval.py",
        synonyms=SYNONYMS,
        description="Send every row of a dataset to a running server, without LoadGen, and write the rows "
        "with their answers. Sampling and lengths are those of the benchmark's accuracy run.",
        epilog="Exit codes: 0 every row is answered, 2 usage, config or dataset, 3 server, 4 failed rows or "
        f"ended early, {SIGNAL_CODES}.",
    )
    _add_rows(parser.add_argument_group("rows"))
    _add_output(parser.add_argument_group("output"))
    run_flags.add_generation(parser.add_argument_group("generation"))
    run_flags.add_server(parser.add_argument_group("server"))
    run_flags.add_failures(parser.add_argument_group("deadlines and failures"))
    run = parser.add_argument_group("run")
    run_flags.add_metrics_port(run)
    run_flags.add_dry_run(run)
    parser.add_argument("--async", dest="asynchronous", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(**_DEFAULTS)
    return parser


def _add_rows(group: argparse._ArgumentGroup) -> None:
    add_benchmark(group)
    run_flags.add_input_file(group)
    group.add_argument("--num-samples", type=int, metavar="N", help="send only N rows (default: all)")
    group.add_argument(
        "--skip-samples", type=int, metavar="N", help="leave out the first N rows (default: %(default)d)"
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--output-file",
        type=path,
        metavar="FILE",
        help=".parquet, or .pkl for a pandas pickle (default: DIR/run_eval/NAME_YYYYmmdd_HHMMSS of "
        "--output-dir, in the input's format)",
    )
    group.add_argument(
        "--output-dir", type=path, metavar="DIR", help="used without --output-file (default: %(default)s)"
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="resume the run of --output-file; only rows without an answer are sent",
    )
    group.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="tokenizer.json or folder of the model, for the text of the answers (default: the benchmark's, "
        "built in, beside the dataset or from the Hugging Face cache; without one the ids alone are written)",
    )


def parse_options(argv: list[str] | None = None) -> EvalOptions:
    """Parse flags; argparse exits with code 2 and one line on wrong usage."""
    given = run_flags.parsed(build_parser(), argv)
    if given.pop("asynchronous"):
        given["warnings"] += ("--async has no effect: requests are always in flight side by side",)
    return EvalOptions(**given | {"server_url": given["server_url"] or ()})
