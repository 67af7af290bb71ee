"""The options of run_batch.py's commands and its command line. Imports stay light for ``--help``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from harness.cli.door import called
from harness.cli.flags import add_flags, add_groups, flag, options, read, shared_options
from harness.cli.parser import SIGNAL_CODES, Parser
from harness.config.choices import LogLevel
from harness.config.other_flags import ELSEWHERE, MODES, SYNONYMS
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
_COMMANDS = {"run", "chat", "generate", "encode", "decode", "score"}
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

    input_file: Path = _input_flag("the number of prompts in the first line, then one prompt in each line")
    output: Path = flag(
        "token ids of the answers, a line each, in the order of the prompts", "--output", "-o", metavar="FILE"
    )
    resume: bool = resume_flag("run of the file")
    restart: bool = restart_flag("run")


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
    """``score``. ``device`` and ``num_workers`` None: what the machine has; ``output``: scores by line."""

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


_LIMIT = {"--max-new-tokens": "'--positions N' limits a prompt together with its answer"}
_PROMPT = {"-i": "the prompt is an argument of its own, in quotation marks; omit the flag"}
FileOptions = EncodeOptions | DecodeOptions | ScoreOptions  # the commands that need no server


def build_parser() -> Parser:
    """All flags of all commands."""
    parser = Parser(
        prog=called("run_batch.py"),
        description="Answer plain prompts with gpt-oss: prompts in, token ids out. Not an MLPerf result.",
        epilog="Exit codes: 0 done, 2 usage or input, 3 server, 4 failed prompts or ended early, 5 below a "
        f"threshold, {SIGNAL_CODES}.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str, **words: Any) -> Parser:
        added: Parser = commands.add_parser(name, help=text, description=text, **words)
        return added

    groups = {
        "files": ("input_file", "output", "resume", "restart"),
        "generation": _GENERATION,
        "server": SERVER,
        "deadlines and failures": FAILURES,
        "run": ("metrics_port", "dry_run", "log_level"),
    }
    elsewhere = ELSEWHERE | _LIMIT
    run = add("run", "answer every prompt of a file", synonyms=SYNONYMS, elsewhere=elsewhere)
    add_groups(run, BatchOptions, groups)
    talk = ("system", "reasoning", *_GENERATION)
    elsewhere |= _PROMPT
    _add_talk(add("chat", "talk to the model at a terminal", elsewhere=elsewhere), talk)
    _add_talk(add("generate", "continue plain text at a terminal", elsewhere=elsewhere), _GENERATION)
    encode = add("encode", "token ids of every line of text")
    add_flags(encode, EncodeOptions, ("input", "output", "encoding", "json"))
    decode = add("decode", "text of every line of token ids")
    add_flags(decode, DecodeOptions, ("line", "input", "output", "encoding", "json"))
    _add_score(add("score", "METEOR and BERTScore against reference answers"))
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
        "METEOR": ("wordnet", "num_workers"),
        "BERTScore": ("bert_model", "num_layers", "device", "batch_size"),
    }
    add_groups(parser, ScoreOptions, groups)


def parse_options(argv: list[str]) -> BatchOptions | TalkOptions | FileOptions:
    """Parse the flags of one command; argparse exits with code 2 and one line on wrong usage."""
    parser = build_parser()
    if "-m" in argv and _COMMANDS.isdisjoint(argv):
        parser.error(f"-m: {MODES}")
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
    needed = {"submission": "--input", "references": "--reference-data"}
    for name, typed in needed.items():
        if given[name] is None and model is None:
            parser.error(f"score needs --model, or {' and '.join(needed.values())}; {typed} is missing")
        given[name] = given[name] or Path(name) / _TOKEN_IDS.format(model)
    for name in ("num_workers", "batch_size"):
        if given[name] is not None and given[name] < 1:
            parser.error(f"--{name.replace('_', '-')} is {given[name]}, expected at least 1")
    return read(ScoreOptions, given)
