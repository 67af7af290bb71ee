"""The options of run_batch.py's commands and its command line. Imports stay light for ``--help``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from harness.cli.door import called
from harness.cli.flags import Command, add_commands, flag, options, read, shared_options
from harness.cli.parser import SIGNAL_CODES, Parser
from harness.config.choices import LogLevel
from harness.config.other_flags import API, ELSEWHERE, MODES, SYNONYMS
from harness.config.run_options import (
    FAILURES,
    SERVER,
    Backend,
    ClientOptions,
    backend_flag,
    ca_file_flag,
    parsed,
    restart_flag,
    resume_flag,
    server_url_flag,
)

DEFAULT_ENCODING = "o200k_harmony"

_TOKEN_IDS = "output_{}_token_ids.txt"  # a model's file in submission/ and references/
_GENERATION = ("model", "positions", "temperature", "top_p", "seed")


def _encoding_flag() -> Any:
    return flag(
        f"{DEFAULT_ENCODING}, or the path of a model's tokenizer.json (default: %(default)s)",
        "--encoding",
        "-e",
        default=DEFAULT_ENCODING,
        metavar="ENCODING",
    )


def _input_flag(text: str) -> Any:
    return flag(text, "--input", "-i", old=("--input-file",), metavar="FILE")


def _output_flag(text: str) -> Any:
    return flag(f"{text} (default: stdout)", "--output", "-o", default=None, metavar="FILE")


@shared_options
class SamplingOptions:
    """What an answer is drawn with, of a file's prompts and of those at a terminal."""

    model: str = flag(
        "gpt-oss-20b or gpt-oss-120b, a model's folder, or a GGUF file for --backend embedded "
        "(default: %(default)s)",
        default="20b",
        metavar="20b|120b|PATH",
    )
    positions: int = flag(
        "positions for a prompt together with its answer, not a number of prompts; 0: the model's context "
        "(default: %(default)d)",
        "--positions",
        "-n",
        default=1024,
        metavar="N",
    )
    temperature: float = flag(
        "sampling temperature; 0: greedy (default: %(default)g)",
        "-t",
        "--temperature",
        default=0.0,
        metavar="T",
    )
    top_p: float = flag(
        "top_p of the sampling (default: %(default)g)", "-p", "--top-p", default=0.9, metavar="P"
    )
    seed: int | None = flag(
        "seed of the sampling (default: the server chooses)",
        "--seed",
        default=None,
        old=("-s",),
        metavar="SEED",
    )


@options
class BatchOptions(ClientOptions, SamplingOptions):
    """``run``. ``positions``: of a prompt with its answer, 0 for the model's context."""

    has_stream_flag: ClassVar[bool] = False
    input_file: Path = _input_flag("the number of prompts in the first line, then one prompt in each line")
    output: Path = flag(
        "token ids of the answers, a line each, in the order of the prompts", "--output", "-o", metavar="FILE"
    )
    resume: bool = resume_flag("run of the file")
    restart: bool = restart_flag("run", of_file=True)


@options
class TalkOptions(SamplingOptions):
    """``generate`` and, with ``chat``, ``chat``: prompts at a terminal. ``prompt`` None: asked for.

    ``warnings`` are about the command line and the environment.
    """

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
    backend: Backend = backend_flag()
    server_url: Sequence[str] = server_url_flag(before_words=True)
    ca_file: Path | None = ca_file_flag()
    log_level: LogLevel = flag("messages on stderr (default: %(default)s)", default="warning")
    warnings: tuple[str, ...] = ()


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
    """``score``. ``device`` and ``num_workers`` None: what the machine has; ``output``: scores by line.

    ``model`` is in the names of the files that no other flag names.
    """

    model: Literal["20b", "120b"] | None = flag(
        f"score {_TOKEN_IDS.format('MODEL')} of ./submission against the one of ./references",
        "--model",
        "-m",
        default=None,
    )
    submission: Path = flag(
        "token ids of the answers (default: file of --model)",
        "--input",
        "-i",
        required=False,
        old=("--submission", "-s"),
        metavar="FILE",
    )
    references: Path = flag(
        "token ids of the reference answers (default: file of --model)",
        "--reference-data",
        "-r",
        required=False,
        old=("--references",),
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
    num_workers: int | None = flag(
        "number of processes (default: number of cores)", default=None, old=("--jobs",), metavar="N"
    )
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
_MODEL = "'--model' is the model that the server has, 20b, 120b or its folder"
_ELSEWHERE = ELSEWHERE | {
    **dict.fromkeys(("--model-path", "--model-name", "--lg-model-name"), _MODEL),
    "--max-new-tokens": "'--positions N' limits a prompt together with its answer",
}
_OF_STREAMS = ("first_token_timeout", "stall_timeout")
_NOT_STREAMED = "answers to prompts of a file come complete, and --timeout ends one; omit the flag"
_RUN = {f"--{name.replace('_', '-')}": _NOT_STREAMED for name in _OF_STREAMS}
_PROMPT = {
    **dict.fromkeys(API, "the server is asked with token ids, by the API of --backend; omit the flag"),
    "-i": "the prompt is an argument of its own, in quotation marks; omit the flag",
}


def _talk(text: str, *more: str) -> Command:
    """A command of prompts at a terminal, ``more`` of whose flags precede those of every answer."""
    groups = {
        "": ("prompt", "log_level"),
        "generation": (*more, *_GENERATION),
        "server": ("backend", "server_url", "ca_file"),
    }
    return Command(TalkOptions, groups, text, {"elsewhere": _ELSEWHERE | _PROMPT})


_COMMANDS = {
    "run": Command(
        BatchOptions,
        {
            "files": ("input_file", "output", "resume", "restart"),
            "generation": _GENERATION,
            "server": SERVER,
            "deadlines and failures": tuple(name for name in FAILURES if name not in _OF_STREAMS),
            "run": ("metrics_port", "dry_run", "log_level"),
        },
        "answer every prompt of a file",
        {"synonyms": SYNONYMS, "elsewhere": _ELSEWHERE | _RUN},
    ),
    "chat": _talk("talk to the model at a terminal", "system", "reasoning"),
    "generate": _talk("continue plain text at a terminal"),
    "encode": Command(
        EncodeOptions, ("input", "output", "encoding", "json"), "token ids of every line of text"
    ),
    "decode": Command(
        DecodeOptions, ("line", "input", "output", "encoding", "json"), "text of every line of token ids"
    ),
    "score": Command(
        ScoreOptions,
        {
            "files": ("model", "submission", "references", "encoding", "thresholds", "output"),
            "METEOR": ("wordnet", "num_workers"),
            "BERTScore": ("bert_model", "num_layers", "device", "batch_size"),
        },
        "METEOR and BERTScore against reference answers",
    ),
}


def build_parser() -> Parser:
    """All flags of all commands."""
    parser = Parser(
        prog=called("run_batch.py"),
        description="Answer plain prompts with gpt-oss: prompts in, token ids out. Not an MLPerf result.",
        epilog="Exit codes: 0 done, 2 usage or input, 3 server, 4 failed prompts or ended early, 5 below a "
        f"threshold, {SIGNAL_CODES}.",
    )
    add_commands(parser, _COMMANDS)
    return parser


def parse_options(argv: list[str]) -> BatchOptions | TalkOptions | FileOptions:
    """Parse the flags of one command; argparse exits with code 2 and one line on wrong usage."""
    parser = build_parser()
    if "-m" in argv and _COMMANDS.keys().isdisjoint(argv):
        parser.error(f"-m: {MODES}")
    given = parsed(parser, argv)
    command = given["command"]
    if command == "score":
        _complete(parser, given)
    cls: type[BatchOptions | TalkOptions | FileOptions] = _COMMANDS[command].options
    return read(cls, given | {"chat": command == "chat"})


def _complete(parser: Parser, given: dict[str, Any]) -> None:
    """The files of ``score`` that --model names."""
    model = given["model"]
    needed = {"submission": "--input", "references": "--reference-data"}
    for name, typed in needed.items():
        if given[name] is None and model is None:
            parser.error(f"score needs --model, or {' and '.join(needed.values())}; {typed} is missing")
        given[name] = given[name] or Path(name) / _TOKEN_IDS.format(model)
    for name in ("num_workers", "batch_size"):
        if given[name] is not None and given[name] < 1:
            parser.error(f"--{name.replace('_', '-')} is {given[name]}, expected at least 1")
