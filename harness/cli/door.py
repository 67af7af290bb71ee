"""The verbs of ``./mlperf``: its first screen, its version, and the name by which a program calls itself.

Imports stay light: ``./mlperf --help`` answers in less than 0.1 s.
"""

import sys
from pathlib import Path
from typing import NamedTuple

from harness.files import ROOT

LAUNCHER = ROOT / "mlperf"


class Verb(NamedTuple):
    """A verb, and the program that has the same work under the name of the reference."""

    program: str
    command: str
    """of a program with several that are verbs of their own"""
    text: str


VERBS = {
    "doctor": Verb("sut.doctor", "", "look at this node and the servers before a run costs hours"),
    "campaign": Verb("harness.campaign", "", "every step below from one file; repeat it to continue"),
    "run": Verb("run_mlperf.py", "", "one run, performance or accuracy: LoadGen drives the servers"),
    "score": Verb("eval_mlperf_accuracy.py", "", "score the answers of an accuracy run"),
    "comply": Verb("run_compliance.py", "", "run and verify the compliance tests"),
    "submit": Verb("prepare_submission.py", "", "system, build, check: the submission folder"),
    "peak": Verb("find_peak.py", "search", "highest target_qps that passes the latency limits"),
    "ladder": Verb("find_peak.py", "ladder", "throughput and latency at fixed numbers in flight"),
    "endpoints": Verb("run_endpoints.py", "", "run, build, check, compare: MLPerf Endpoints, rehearsed"),
    "report": Verb("report.py", "", "show, compare, watch, list: pages and tables of runs"),
    "eval": Verb("run_eval.py", "", "send every row of a dataset and keep its answer"),
    "prompts": Verb("run_batch.py", "", "run, chat, generate, encode, decode, score: plain prompts"),
}
GROUPS = {
    "From servers to a submission": ("doctor", "campaign", "run", "score", "comply", "submit"),
    "Find the rate": ("peak", "ladder"),
    "A curve of MLPerf Endpoints": ("endpoints",),
    "Look at runs": ("report",),
    "Without LoadGen": ("eval", "prompts"),
}
_HEAD = """\
usage: ./mlperf VERB [FLAG]...
       ./mlperf help VERB       all flags of a verb

MLPerf Inference of LLMs, from running servers to a checked submission folder.
First: ./setup.sh; datasets/download.sh; a server, such as sglang/run_server.sh
"""
_FOOT = """\
Example, which needs no GPU:
  ./mlperf run --backend embedded --user-conf configs/quick.conf \\
      --max-new-tokens 32 --input-file datasets/samples/perf_sample.parquet
All flags as a page: docs/reference/cli.md; the way step by step: README.md
Exit codes: 0 done, 2 usage or input, 3 server, 4 INVALID or failures,
            5 a score, a test or a check not passed, 128+N ended by signal N"""
# Words for the same work, beside the verbs and the names of the programs.
_MEANT = {
    "accuracy": "score",
    "audit": "comply",
    "batch": "prompts",
    "benchmark": "run",
    "build": "submit build",
    "chat": "prompts chat",
    "check": "submit check",
    "compare": "report compare",
    "compliance": "comply",
    "curve": "endpoints",
    "decode": "prompts decode",
    "diagnose": "doctor",
    "encode": "prompts encode",
    "evaluate": "score",
    "generate": "prompts generate",
    "getp": "prompts run",
    "grade": "score",
    "list": "report list",
    "pareto": "endpoints",
    "rehearse": "endpoints run",
    "search": "peak",
    "show": "report show",
    "status": "campaign status",
    "submission": "submit",
    "system": "submit system",
    "test": "comply",
    "verify": "comply verify",
    "watch": "report watch",
}


def first_screen() -> str:
    """What a newcomer reads once."""
    width = max(map(len, VERBS)) + 2
    parts = [_HEAD]
    for title, verbs in GROUPS.items():
        parts += [title, *(f"  {verb:<{width}}{VERBS[verb].text}" for verb in verbs), ""]
    return "\n".join([*parts, _FOOT])


def unknown(word: str) -> str:
    """The error about a word that is no verb."""
    from difflib import get_close_matches

    programs = {verb.program: name for name, verb in reversed(VERBS.items())}
    known = {name: name for name in VERBS} | programs | _MEANT
    near = get_close_matches(word.lower(), known, 1)
    hint = f"did you mean ./mlperf {known[near[0]]}?" if near else f"expected one of {', '.join(VERBS)}"
    return f"./mlperf: error: {word[:80]!a} is no verb; {hint}; see ./mlperf --help"


def is_open() -> bool:
    """Whether this process was started by a verb of ``./mlperf``."""
    return Path(sys.argv[0]).name == LAUNCHER.name


def called(program: str, command: str = "") -> str:
    """What help and messages call a program: ``./mlperf run`` where this process was started so."""
    return f"./mlperf {verb_of(program, command)}" if is_open() else f"{program} {command}".rstrip()


def verb_of(program: str, command: str = "") -> str:
    """The verb of a program, or of one of its commands."""
    return next(
        name for name, verb in VERBS.items() if verb.program == program and command in ("", verb.command)
    )


def version() -> str:
    """The project's version, and the commit where there is one."""
    import tomllib

    from harness.git import ask_git, head_of

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = f"{project['name']} {project['version']}"
    if (found := head_of(ROOT)) is None:
        return named
    changes = ask_git(ROOT, "status", "--porcelain", "--untracked-files=no") or ""
    return f"{named} (commit {found[0][:12]}{', with local changes' if changes.strip() else ''})"
