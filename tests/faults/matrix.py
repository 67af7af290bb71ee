"""The fault matrix: what each fault does to a run, in every scenario and mode. The tests run from it.

``python -m tests.faults.tables`` writes its tables into docs/reference/faults.md.
"""

from dataclasses import dataclass

from tests.stub import CUMULATIVE_ONLY, INCREMENTAL_ONLY, ONLY_STREAMS, Fault

VALID, INVALID, INTERRUPTED, NOTHING = "VALID", "INVALID", "INTERRUPTED", "none"
DEADLINE_S = 8  # --timeout of the runs with faults of single answers


@dataclass(frozen=True, slots=True)
class Setting:
    """One of the columns."""

    scenario: str
    accuracy: bool

    @property
    def mode(self) -> str:
        return "accuracy" if self.accuracy else "performance"

    def __str__(self) -> str:
        return f"{self.scenario}-{self.mode}"


OFFLINE, OFFLINE_ACCURACY = Setting("offline", False), Setting("offline", True)
SERVER, SERVER_ACCURACY = Setting("server", False), Setting("server", True)
INTERACTIVE, INTERACTIVE_ACCURACY = Setting("interactive", False), Setting("interactive", True)
SETTINGS = (OFFLINE, OFFLINE_ACCURACY, SERVER, SERVER_ACCURACY, INTERACTIVE, INTERACTIVE_ACCURACY)
TWO = (OFFLINE, SERVER_ACCURACY)  # for what no scenario and no mode changes
# The faults of single answers that each of these runs meets; of incremental streams see stub/faults.py.
ANSWERS = tuple(f for f in Fault if f not in {*INCREMENTAL_ONLY, Fault.ONE_TOKEN, Fault.ONE_PIECE})
_NEW_TOKENS = tuple(f for f in Fault if f in {*ANSWERS, *INCREMENTAL_ONLY} - CUMULATIVE_ONLY)
_WHOLE = tuple(f for f in ANSWERS if f.whole != ONLY_STREAMS)
_OPENAI, _TRTLLM = ("--backend", "openai"), ("--backend", "trtllm")


@dataclass(frozen=True, slots=True)
class AnswerRuns:
    """Runs that meet the faults of single answers in one kind of answer."""

    kind: str
    faults: tuple[Fault, ...]
    settings: tuple[Setting, ...]
    arguments: tuple[str, ...] = ()
    streams: bool = True
    """It is asked for, since Offline's default is not to stream."""
    cumulative: bool = True
    quick: int = 0
    """So many of the settings are in the quick loop."""


_SINGLE_STREAM = Setting("single-stream", False)
_ALL = (SERVER_ACCURACY, *SETTINGS[:3], *SETTINGS[4:], _SINGLE_STREAM)
ANSWER_RUNS = (
    AnswerRuns("cumulative", ANSWERS, _ALL, quick=1),
    AnswerRuns("incremental", _NEW_TOKENS, (SERVER, OFFLINE), cumulative=False),
    AnswerRuns("openai", _NEW_TOKENS, (SERVER, OFFLINE_ACCURACY), _OPENAI),
    AnswerRuns("trtllm", _NEW_TOKENS, (SERVER_ACCURACY,), _TRTLLM),
    AnswerRuns("whole", _WHOLE, (OFFLINE_ACCURACY, OFFLINE, SERVER), streams=False, quick=1),
    AnswerRuns("whole openai", _WHOLE, (OFFLINE, OFFLINE_ACCURACY), _OPENAI, streams=False),
    AnswerRuns("whole trtllm", _WHOLE, (OFFLINE,), _TRTLLM, streams=False),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the program ends."""

    verdict: str
    """That of run.json."""
    code: int
    words: str = ""
    """Words of a reason or of the error line."""
    failures: frozenset[str] = frozenset()
    """The failed queries have at least one of these kinds; empty if none fails or none is recorded."""


@dataclass(frozen=True, slots=True)
class RunFault:
    """A fault of the server or the machine that is met once in a run."""

    key: str
    """scenes.py causes it by this name."""
    what: str
    outcome: Outcome
    quick: Setting | None = None
    """The setting whose cell belongs to the quick loop."""
    only: tuple[Setting, ...] = ()
    """The settings, where not those of ``settings``."""

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Two where the run does not begin: neither scenario nor mode matters then."""
        return self.only or (TWO if self.outcome.code in (2, 3) else SETTINGS)


def _refused(code: int, words: str) -> Outcome:
    """The run does not begin."""
    return Outcome(NOTHING, code, words)


def _invalid(words: str, *failures: str) -> Outcome:
    return Outcome(INVALID, 4, words, frozenset(failures))


def _interrupted(code: int, words: str) -> Outcome:
    return Outcome(INTERRUPTED, code, words)


_UNHARMED = Outcome(VALID, 0)
_GONE = ("connect", "no_response", "truncated", "send")

SERVER_FAULTS = (
    RunFault("refused", "no server listens", _refused(3, "not reachable")),
    RunFault("unhealthy", "`/health` says 503", _refused(3, "/health answered 503, expected 200")),
    RunFault("small_context", "server's context too short", _refused(3, "raise the server's context length")),
    RunFault("trial_fails", "the trial request fails", _refused(3, "the trial request failed: http_status")),
    RunFault(
        "wrong_model",
        "server has another model (NOT OFFICIAL)",
        Outcome(VALID, 0, "model-7b, the rules say openai/gpt-oss-120b"),
    ),
    RunFault(
        "one_piece",
        "streams that arrive in one piece (a proxy that buffers)",
        Outcome(VALID, 0, "came in one event"),
        only=(SERVER, INTERACTIVE),
    ),
    RunFault("one_token", "answers of one token", _invalid("answers have a single token")),
    RunFault("server_dies", "server dies in mid-run", _invalid("ended early: ", *_GONE)),
    RunFault("server_restarts", "server dies and comes back", _invalid("failed", *_GONE)),
    RunFault("replica_restarts", "one of four servers dies and comes back", _invalid("failed", *_GONE)),
    RunFault(
        "other_model_restarts",
        "server dies and comes back with another model",
        _invalid("ended early: http://127.0.0.1:", *_GONE),
    ),
    RunFault(
        "other_model_of_replica",
        "one of four servers comes back with another model",
        _invalid("gpt-oss-120b is now gpt-oss-20b", *_GONE),
    ),
    RunFault(
        "other_weights",
        "the server's weights are others at the end",
        _invalid("weight version default is now v2"),
        OFFLINE,
    ),
)

PROCESS_FAULTS = (
    RunFault("worker_killed", "worker killed", _invalid("killed by SIGKILL", "worker_lost"), SERVER_ACCURACY),
    RunFault("worker_stuck", "worker stopped", _invalid("had not moved for", "worker_lost")),
    RunFault(
        "loadgen_killed", "LoadGen's process killed", _invalid("LoadGen process was killed"), INTERACTIVE
    ),
    RunFault(
        "loadgen_killed_early",
        "LoadGen's process killed before the test",
        _invalid("LoadGen process was killed"),
    ),
    RunFault("loadgen_stuck", "LoadGen's process stopped", _invalid("has not moved for")),
    RunFault("supervisor_killed", "the program killed", Outcome(NOTHING, -9)),
    RunFault("paused", "paused for 3.5 s (Ctrl-Z, fg)", Outcome(VALID, 0, "suspended for")),
    RunFault("terminal_gone", "terminal gone (SIGHUP)", _interrupted(129, "ended by SIGHUP")),
    RunFault("nohup", "terminal gone under nohup", _UNHARMED),
    RunFault("ctrl_c", "Ctrl-C", _interrupted(130, "ended by SIGINT")),
    RunFault("ctrl_c_twice", "Ctrl-C twice", _interrupted(130, "ended by SIGINT")),
    RunFault("sigterm", "SIGTERM", _interrupted(143, "ended by SIGTERM")),
)

MACHINE_FAULTS = (
    RunFault("disk_full_at_start", "disk full before the run", _refused(2, "No space left on device")),
    RunFault("disk_without_room", "64 kB of disk space", _refused(2, "No space left on device")),
    RunFault("disk_full", "disk full in mid-run", _invalid("No space left on device"), SERVER_ACCURACY),
    RunFault("loadgen_log_cut", "LoadGen's logs cut short", _invalid("is cut short")),
    RunFault("journal_cut", "the journal cut short", _invalid("File too large")),
    RunFault("folder_removed", "output folder removed", _invalid("removed")),
    RunFault("few_descriptors", "12 open files allowed", _refused(2, "12; raise it (ulimit -n)")),
    RunFault(
        "too_few_for_flight",
        "80 open files allowed, for 64 requests in flight",
        _refused(2, "raise it (ulimit -Hn)"),
    ),
    RunFault("descriptors_run_out", "open files run out", _invalid("failed", "local_limit")),
    RunFault(
        "memory_runs_out",
        "workers get no more memory",
        _invalid("failed", "http_protocol", "local_limit", "worker_lost"),
    ),
    RunFault("stdout_closed", "stdout closed", _UNHARMED, only=TWO),
    RunFault("stdout_reader_left", "the reader of stdout leaves", _UNHARMED, only=TWO),
    RunFault("stdout_full", "stdout on a full disk", _UNHARMED, only=TWO),
    RunFault("all_streams_closed", "stdin, stdout, stderr closed", _UNHARMED, only=TWO),
)
