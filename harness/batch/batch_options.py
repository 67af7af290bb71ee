"""The options of run_batch.py's commands and its command line. Imports stay light for ``--help``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from harness.cli.flags import add_flags, add_groups, flag, options, read
from harness.cli.parser import SIGNAL_CODES, Parser
from harness.config.choices import LogLevel
from harness.config.run_options import (
    FAILURES,
    SERVER,
    Backend,
    ClientOptions,
    backend_flag,
    ca_file_flag,
    parsed,
    restart_flag,
    server_url_flag,
)

DEFAULT_ENCODING = "o200k_harmony"
DEFAULT_POSITIONS = 1024

_TOKEN_IDS = "output_{}_token_ids.txt"  # a model's file in submission/ and references/
_GENERATION = ("model", "positions", "temperature", "top_p", "seed")


def _model_flag() -> Any:
    return flag(
        "gpt-oss-20b or gpt-oss-120b, a model's folder, or a GGUF file for --backend embedded "
        "(default: %(default)s)",
        default="20b",
        metavar="20b|120b|PATH",
    )


def _positions_flag() -> Any:
    return flag(
        "positions for a prompt together with its answer; 0: the model's context (default: %(default)d)",
        "-n",
        default=DEFAULT_POSITIONS,
        metavar="N",
    )


def _temperature_flag() -> Any:
    return flag(
        "sampling temperature; 0: greedy (default: %(default)g)",
        "-t",
        "--temperature",
        default=0.0,
        metavar="T",
    )


def _top_p_flag() -> Any:
    return flag("top_p of the sampling (default: %(default)g)", "-p", "--top-p", default=0.9, metavar="P")


def _seed_flag() -> Any:
    return flag(
        "seed of the sampling (default: the server chooses)", "-s", "--seed", default=None, metavar="SEED"
    )


def _encoding_flag() -> Any:
    return flag(
        f"{DEFAULT_ENCODING}, or the path of a model's tokenizer.json (default: %(default)s)",
        "--encoding",
        "-e",
        default=DEFAULT_ENCODING,
        metavar="ENCODING",
    )


def _input_flag(text: str) -> Any:
    return flag(text, "--input", "-i", metavar="FILE")


def _output_flag(text: str) -> Any:
    return flag(f"{text} (default: stdout)", "--output", "-o", default=None, metavar="FILE")


@options
class BatchOptions(ClientOptions):
    """``run``. ``positions``: of a prompt with its answer, 0 for the model's context."""

    input_file: Path = _input_flag("the number of prompts in the first line, then one prompt in each line")
    output: Path = flag(
        "token ids of the answers, a line each, in the order of the prompts", "--output", "-o", metavar="FILE"
    )
    resume: bool = flag(
        "fail where no run of the file with the same settings is to be continued; without the flag such a "
        "run is continued, too",
        default=False,
    )
    restart: bool = restart_flag("run")
    model: str = _model_flag()
    positions: int = _positions_flag()
    temperature: float = _temperature_flag()
    top_p: float = _top_p_flag()
    seed: int | None = _seed_flag()


@options
class TalkOptions:
    """``generate`` and, with ``chat``, ``chat``: prompts at a terminal. ``prompt`` None: asked for."""

    chat: bool
    prompt: str | None = flag(
        "a prompt to answer (default: each line of stdin)",
        "prompt",
        default=None,
        nargs="?",
        metavar="PROMPT",
    )
    system: str | None = flag("instructions for the model", "--system", "-y", default=None, metavar="TEXT")
    reasoning: Literal["low", "medium", "high"] = flag(
        "reasoning effort of the answers (default: %(default)s)", default="medium"
    )
    model: str = _model_flag()
    positions: int = _positions_flag()
    temperature: float = _temperature_flag()
    top_p: float = _top_p_flag()
    seed: int | None = _seed_flag()
    backend: Backend = backend_flag()
    server_url: Sequence[str] = server_url_flag()
    ca_file: Path | None = ca_file_flag()
    log_level: LogLevel = flag("messages on stderr (default: %(default)s)", default="warning")


@options
class EncodeOptions:
    """``encode``: texts to token ids. ``output`` None: stdout."""

    input: Path = _input_flag("text, one in each line")
    output: Path | None = _output_flag("token ids, a line each")
    encoding: str = _encoding_flag()
    json: bool = flag("each line of the input is a JSON string", default=False)
    log_level: LogLevel = "info"


@options
class DecodeOptions:
    """``decode``: token ids to texts. ``output`` None: stdout; ``line``: of the file, from 0, -1 for all."""

    line: int | None = flag(
        "only this line, counted from 0; -1: all, each after a line with its number",
        "line",
        default=None,
        nargs="?",
        metavar="LINE",
    )
    input: Path = _input_flag("token ids, one answer in each line")
    output: Path | None = _output_flag("text of the answers")
    encoding: str = _encoding_flag()
    json: bool = flag("write each text as a JSON string: line breaks are escaped", default=False)
    log_level: LogLevel = "info"


@options
class ScoreOptions:
    """``score``. ``device`` and ``jobs`` None: what the machine has; ``output``: scores by line."""

    submission: Path = flag(
        "token ids of the answers (default: file of --model)",
        "--submission",
        "-s",
        required=False,
        metavar="FILE",
    )
    references: Path = flag(
        "token ids of the reference answers (default: file of --model)",
        "--references",
        "-r",
        required=False,
        metavar="FILE",
    )
    encoding: str = _encoding_flag()
    thresholds: Path | None = flag(
        "JSON object of the lowest accepted meteor and bertscore_f1; a lower score gives exit code 5",
        "--thresholds",
        "--threshold",
        default=None,
        metavar="FILE",
    )
    output: Path | None = flag(
        "parquet file of the scores by line (default: none)", "--output", "-o", default=None, metavar="FILE"
    )
    wordnet: Path | None = flag(
        "WordNet of nltk, a folder or a zip file (default: nltk's search path)", default=None, metavar="DIR"
    )
    jobs: int | None = flag("number of processes (default: number of cores)", default=None, metavar="N")
    bert_model: Path | None = flag(
        "folder of roberta-large-mnli (default: bs_model/roberta-large-mnli in MODELS_ROOT)",
        default=None,
        metavar="DIR",
    )
    num_layers: int = flag("layer whose vectors are compared (default: %(default)d)", default=24, metavar="N")
    device: str | None = flag(
        "device of torch, such as cuda:0 or cpu (default: a GPU if there is one)", default=None
    )
    batch_size: int = flag("texts in a batch (default: %(default)d)", default=64, metavar="N")
    log_level: LogLevel = "info"


FileOptions = EncodeOptions | DecodeOptions | ScoreOptions  # the commands that need no server


def build_parser() -> Parser:
    """All flags of all commands."""
    parser = Parser(
        prog="run_batch.py",
        description="Answer plain prompts with gpt-oss: prompts in, token ids out. Not an MLPerf result.",
        epilog="Exit codes: 0 done, 2 usage or input, 3 server, 4 failed prompts or ended early, 5 below a "
        f"threshold, {SIGNAL_CODES}.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    groups = {
        "files": ("input_file", "output", "resume", "restart"),
        "generation": _GENERATION,
        "server": SERVER,
        "deadlines and failures": FAILURES,
        "run": ("metrics_port", "dry_run", "log_level"),
    }
    add_groups(commands.add_parser("run", help="answer every prompt of a file"), BatchOptions, groups)
    talk = ("system", "reasoning", *_GENERATION)
    _add_talk(commands.add_parser("chat", help="talk to the model at a terminal"), talk)
    _add_talk(commands.add_parser("generate", help="continue plain text at a terminal"), _GENERATION)
    encode = commands.add_parser("encode", help="token ids of every line of text")
    add_flags(encode, EncodeOptions, ("input", "output", "encoding", "json"))
    decode = commands.add_parser("decode", help="text of every line of token ids")
    add_flags(decode, DecodeOptions, ("line", "input", "output", "encoding", "json"))
    _add_score(commands.add_parser("score", help="METEOR and BERTScore against reference answers"))
    return parser


def _add_talk(parser: Parser, generation: Sequence[str]) -> None:
    add_flags(parser, TalkOptions, ("prompt",))
    add_groups(
        parser, TalkOptions, {"generation": generation, "server": ("backend", "server_url", "ca_file")}
    )
    add_flags(parser, TalkOptions, ("log_level",))


def _add_score(parser: Parser) -> None:
    files = parser.add_argument_group("files")
    files.add_argument(
        "--model",
        "-m",
        choices=("20b", "120b"),
        help=f"score {_TOKEN_IDS.format('MODEL')} of ./submission against the one of ./references",
    )
    add_flags(files, ScoreOptions, ("submission", "references", "encoding", "thresholds", "output"))
    groups = {
        "METEOR": ("wordnet", "jobs"),
        "BERTScore": ("bert_model", "num_layers", "device", "batch_size"),
    }
    add_groups(parser, ScoreOptions, groups)


def parse_options(argv: list[str] | None = None) -> BatchOptions | TalkOptions | FileOptions:
    """Parse the flags of one command; argparse exits with code 2 and one line on wrong usage."""
    parser = build_parser()
    given = parsed(parser, argv)
    match given["command"]:
        case "encode":
            return read(EncodeOptions, given)
        case "decode":
            return read(DecodeOptions, given)
        case "score":
            return _score_options(parser, given)
        case "run":
            return read(BatchOptions, given)
    return read(TalkOptions, given | {"chat": given["command"] == "chat"})


def _score_options(parser: Parser, given: dict[str, Any]) -> ScoreOptions:
    model = given["model"]
    for name, folder in (("submission", "submission"), ("references", "references")):
        if given[name] is None and model is None:
            parser.error(f"score needs --model, or --submission and --references; --{name} is missing")
        given[name] = given[name] or Path(folder) / _TOKEN_IDS.format(model)
    for name in ("jobs", "batch_size"):
        if given[name] is not None and given[name] < 1:
            parser.error(f"--{name.replace('_', '-')} is {given[name]}, expected at least 1")
    return read(ScoreOptions, given)
