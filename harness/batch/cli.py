"""The command line of run_batch.py. Imports stay light, so that ``--help`` is fast."""

import argparse
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_args

from harness.batch.batch_options import (
    DEFAULT_ENCODING,
    BatchOptions,
    CodeOptions,
    DecodeOptions,
    EncodeOptions,
    ScoreOptions,
    TalkOptions,
)
from harness.cli import run_flags
from harness.cli.parser import SIGNAL_CODES, Parser, path
from harness.config.run_options import LogLevel

Options = BatchOptions | TalkOptions | EncodeOptions | DecodeOptions | ScoreOptions

_TOKEN_IDS = "output_{}_token_ids.txt"  # of a model, in submission/ and references/


def build_parser() -> Parser:
    """All flags of all commands."""
    parser = Parser(
        prog="run_batch.py",
        description="Answer plain prompts with gpt-oss: prompts in, token ids out. Not an MLPerf result.",
        epilog="Exit codes: 0 done, 2 usage or input, 3 server, 4 failed prompts or ended early, 5 below a "
        f"threshold, {SIGNAL_CODES}.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run(commands.add_parser("run", help="answer every prompt of a file"))
    _add_talk(commands.add_parser("chat", help="talk to the model at a terminal"), chat=True)
    _add_talk(commands.add_parser("generate", help="continue plain text at a terminal"), chat=False)
    _add_encode(commands.add_parser("encode", help="token ids of every line of text"))
    _add_decode(commands.add_parser("decode", help="text of every line of token ids"))
    _add_score(commands.add_parser("score", help="METEOR and BERTScore against reference answers"))
    return parser


def _add_run(parser: Parser) -> None:
    files = parser.add_argument_group("files")
    files.add_argument(
        "--input",
        "-i",
        dest="input_file",
        type=path,
        metavar="FILE",
        required=True,
        help="the number of prompts in the first line, then one prompt in each line",
    )
    files.add_argument(
        "--output",
        "-o",
        type=path,
        metavar="FILE",
        required=True,
        help="token ids of the answers, a line each, in the order of the prompts",
    )
    files.add_argument(
        "--resume",
        action="store_true",
        help="resume the batch of --output; only prompts without an answer are sent",
    )
    _add_generation(parser.add_argument_group("generation"))
    run_flags.add_server(parser.add_argument_group("server"))
    run_flags.add_failures(parser.add_argument_group("deadlines and failures"))
    run = parser.add_argument_group("run")
    run_flags.add_metrics_port(run)
    run_flags.add_dry_run(run)
    parser.set_defaults(**_defaults(BatchOptions))


def _add_talk(parser: Parser, *, chat: bool) -> None:
    parser.add_argument(
        "prompt", nargs="?", metavar="PROMPT", help="a prompt to answer (default: each line of stdin)"
    )
    generation = parser.add_argument_group("generation")
    if chat:
        generation.add_argument("--system", "-y", metavar="TEXT", help="instructions for the model")
        generation.add_argument(
            "--reasoning",
            choices=("low", "medium", "high"),
            help="reasoning effort of the answers (default: %(default)s)",
        )
    _add_generation(generation)
    server = parser.add_argument_group("server")
    run_flags.add_backend(server)
    run_flags.add_ca_file(server)
    parser.add_argument(
        "--log-level", choices=get_args(LogLevel), help="messages on stderr (default: %(default)s)"
    )
    parser.set_defaults(**_defaults(TalkOptions), chat=chat)


def _add_generation(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model",
        metavar="20b|120b|PATH",
        help="gpt-oss-20b or gpt-oss-120b, a model's folder, or a GGUF file for --backend embedded "
        "(default: %(default)s)",
    )
    group.add_argument(
        "-n",
        dest="positions",
        type=int,
        metavar="N",
        help="positions for a prompt together with its answer; 0: the model's context (default: %(default)d)",
    )
    group.add_argument(
        "-t",
        "--temperature",
        type=float,
        metavar="T",
        help="sampling temperature; 0: greedy (default: %(default)g)",
    )
    group.add_argument(
        "-p", "--top-p", type=float, metavar="P", help="top_p of the sampling (default: %(default)g)"
    )
    group.add_argument(
        "-s", "--seed", type=int, metavar="SEED", help="seed of the sampling (default: the server chooses)"
    )


def _add_encode(parser: Parser) -> None:
    _add_files(parser, "text, one in each line", "token ids, a line each")
    parser.add_argument("--json", action="store_true", help="each line of the input is a JSON string")
    parser.set_defaults(**_defaults(EncodeOptions))


def _add_decode(parser: Parser) -> None:
    parser.add_argument(
        "line",
        type=int,
        nargs="?",
        metavar="LINE",
        help="only this line, counted from 0; -1: all, each after a line with its number",
    )
    _add_files(parser, "token ids, one answer in each line", "text of the answers")
    parser.add_argument(
        "--json", action="store_true", help="write each text as a JSON string: line breaks are escaped"
    )
    parser.set_defaults(**_defaults(DecodeOptions))


def _add_score(parser: Parser) -> None:
    files = parser.add_argument_group("files")
    files.add_argument(
        "--model",
        "-m",
        choices=("20b", "120b"),
        help=f"score {_TOKEN_IDS.format('MODEL')} of ./submission against the one of ./references",
    )
    for flag, short, what in (
        ("submission", "s", "token ids of the answers"),
        ("references", "r", "token ids of the reference answers"),
    ):
        files.add_argument(
            f"--{flag}",
            f"-{short}",
            type=path,
            metavar="FILE",
            help=f"{what} (default: file of --model)",
        )
    add_encoding(files)
    files.add_argument(
        "--thresholds",
        "--threshold",
        type=path,
        metavar="FILE",
        help="JSON object of the lowest accepted meteor and bertscore_f1; a lower score gives exit code 5",
    )
    files.add_argument(
        "--output", "-o", type=path, metavar="FILE", help="parquet file of the scores by line (default: none)"
    )
    _add_meteor(parser.add_argument_group("METEOR"))
    _add_bert_score(parser.add_argument_group("BERTScore"))
    parser.set_defaults(**_defaults(ScoreOptions))


def _add_meteor(meteor: argparse._ArgumentGroup) -> None:
    meteor.add_argument(
        "--wordnet",
        type=path,
        metavar="DIR",
        help="WordNet of nltk, a folder or a zip file (default: nltk's search path)",
    )
    meteor.add_argument(
        "--jobs", type=int, metavar="N", help="number of processes (default: number of cores)"
    )


def _add_bert_score(bert: argparse._ArgumentGroup) -> None:
    bert.add_argument(
        "--bert-model",
        type=path,
        metavar="DIR",
        help="folder of roberta-large-mnli (default: bs_model/roberta-large-mnli in MODELS_ROOT)",
    )
    bert.add_argument(
        "--num-layers", type=int, metavar="N", help="layer whose vectors are compared (default: %(default)d)"
    )
    bert.add_argument(
        "--device", help="device of torch, such as cuda:0 or cpu (default: a GPU if there is one)"
    )
    bert.add_argument("--batch-size", type=int, metavar="N", help="texts in a batch (default: %(default)d)")


def _add_files(parser: Parser, given: str, written: str) -> None:
    parser.add_argument("--input", "-i", type=path, metavar="FILE", required=True, help=given)
    parser.add_argument("--output", "-o", type=path, metavar="FILE", help=f"{written} (default: stdout)")
    add_encoding(parser)


def add_encoding(parser: argparse._ActionsContainer) -> None:
    """The tokenizer."""
    parser.add_argument(
        "--encoding",
        "-e",
        metavar="ENCODING",
        help=f"{DEFAULT_ENCODING}, or the path of a model's tokenizer.json (default: %(default)s)",
    )


def _defaults(options: type[BatchOptions | CodeOptions | ScoreOptions | TalkOptions]) -> dict[str, object]:
    """Those of a command's flags; the environment may name a backend."""
    own = {field.name: field.default for field in fields(options) if field.default is not MISSING}
    from_environment = {name: run_flags.DEFAULTS[name] for name in ("server_url", "backend") if name in own}
    return own | from_environment


def parse_options(argv: list[str] | None = None) -> Options:
    """Parse the flags of one command; argparse exits with code 2 and one line on wrong usage."""
    parser = build_parser()
    given: dict[str, Any] = run_flags.parsed(parser, argv)
    command = given.pop("command")
    match command:
        case "encode":
            return EncodeOptions(**_without_warnings(given))
        case "decode":
            return DecodeOptions(**_without_warnings(given))
        case "chat" | "generate":
            return TalkOptions(**_without_warnings(given) | {"server_url": given["server_url"] or ()})
        case "score":
            return _score_options(parser, _without_warnings(given))
    return BatchOptions(**given | {"server_url": given["server_url"] or ()})


def _score_options(parser: Parser, given: dict[str, Any]) -> ScoreOptions:
    model = given.pop("model")
    for name, folder in (("submission", "submission"), ("references", "references")):
        if given[name] is None and model is None:
            parser.error(f"score needs --model, or --submission and --references; --{name} is missing")
        given[name] = given[name] or Path(folder) / _TOKEN_IDS.format(model)
    for name in ("jobs", "batch_size"):
        if given[name] is not None and given[name] < 1:
            parser.error(f"--{name.replace('_', '-')} is {given[name]}, expected at least 1")
    return ScoreOptions(**given)


def _without_warnings(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "warnings"}
