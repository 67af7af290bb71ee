"""The fault matrix: what each fault does to a run, in every scenario and mode. The tests run from it.

``python -m tests.faults.tables`` writes its tables into docs/reference/faults.md.
"""

from dataclasses import dataclass, replace

from harness.config.protocol import Protocol, own_protocol
from tests.stub import (
    CUMULATIVE_ONLY,
    INCREMENTAL_ONLY,
    OF_CHATS,
    OF_IDS,
    OF_TEXT,
    OF_USAGE,
    ONLY_STREAMS,
    Fault,
)

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
# For faults that have a run of their own. Interactive is Server with other limits: one of its modes shows it.
FIVE = SETTINGS[:5]
TWO = (OFFLINE, SERVER_ACCURACY)  # for what no scenario and no mode changes
_SGLANG, _LLAMACPP = own_protocol("sglang"), own_protocol("llamacpp")
# Faults that are none, or others, where text is encoded: the server's count need not be that of the text.
_OF_ENCODED = dict.fromkeys(
    (Fault.WRONG_COUNT, Fault.DUPLICATED_ID, Fault.SKIPPED_ID, *INCREMENTAL_ONLY), ""
) | {Fault.HALF_CHARACTER: "malformed"}


@dataclass(frozen=True, slots=True)
class Way:
    """How a server is asked and answers."""

    protocol: Protocol
    streams: bool = True
    cumulative: bool = False

    def __str__(self) -> str:
        one = self.protocol
        said = "cumulative" if self.cumulative else "streamed" if self.streams else "complete"
        return f"{one.dialect}-{one.api}-{one.answers}-{said}"

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Those that its answers can have."""
        none = {Fault.ONE_TOKEN, Fault.ONE_PIECE} | (OF_TEXT if self.protocol.answers == "ids" else OF_IDS)
        none |= INCREMENTAL_ONLY if self.cumulative else CUMULATIVE_ONLY
        if not self.streams:
            none |= INCREMENTAL_ONLY | {fault for fault in Fault if fault.whole == ONLY_STREAMS}
        if self.protocol in (_SGLANG, _LLAMACPP):
            none |= OF_USAGE
        if not self.protocol.api.startswith("chat"):
            none |= OF_CHATS
        if self.protocol == _LLAMACPP:
            none |= {Fault.OTHER_ID, Fault.ID_CHANGES, Fault.OTHER_PROMPT}
        return tuple(fault for fault in Fault if fault not in none)

    def failure(self, fault: Fault) -> str:
        """The kind of failure that a query ends in; "": it completes."""
        one = self.protocol
        if fault in (Fault.OTHER_TEMPLATE, Fault.EMPTY_CHAT) and self._repeats_prompt and not one.text_in:
            return "other_request"
        if fault is Fault.UNCOUNTED_PROMPT and self._repeats_prompt:
            return ""  # the ids are compared
        if fault is Fault.OTHER_PROMPT and one.text_in and not (self.streams and self._repeats_prompt):
            return ""  # the ids of a text are the server's own; their number is right
        if fault is Fault.ABORT_GOES_ON and one == _LLAMACPP:
            return "after_end"
        if one.answers == "text" and fault in _OF_ENCODED:
            return _OF_ENCODED[fault]
        return fault.failure if self.streams else fault.whole

    def changes_ids(self, fault: Fault) -> bool:
        """Whether the answer completes with other ids: text that is encoded shows less than ids do."""
        changing = {*_OF_ENCODED, Fault.HALVED_CHARACTER} - {Fault.WRONG_COUNT}
        return self.protocol.answers == "text" and fault in changing

    @property
    def _repeats_prompt(self) -> bool:
        """Whether its answers have the prompt's ids."""
        one = self.protocol
        return one.answers == "ids" and one.api != "generate" and one.dialect in ("openai", "sglang")


def _both(way: Way) -> tuple[Way, Way]:
    return way, replace(way, streams=False)


# Each way is met by all of its faults in the client; the servers' other dialects differ in their requests.
WAYS = tuple(
    way
    for protocol in (
        _LLAMACPP,
        Protocol("openai", "completions"),
        Protocol("openai", "generate"),
        Protocol("openai", "chat-ids"),
        Protocol("openai", "completions-text"),
        Protocol("openai", "chat"),
        Protocol("openai", "completions", "text"),
        Protocol("openai", "chat-ids", "text"),
        Protocol("openai", "completions-text", "text"),
        Protocol("openai", "chat", "text"),
        Protocol("sglang", "completions"),
        Protocol("sglang", "chat-ids", "text"),
        Protocol("trtllm", "completions"),
        Protocol("trtllm", "chat-ids", "text"),
        Protocol("llamacpp", "chat", "text"),
        Protocol("dynamo", "completions"),
        Protocol("dynamo", "chat-ids"),
    )
    for way in _both(Way(protocol))
)


@dataclass(frozen=True, slots=True)
class AnswerRuns:
    """Runs that meet all faults of single answers in one kind of answer."""

    way: Way
    settings: tuple[Setting, ...]
    arguments: tuple[str, ...] = ()
    quick: int = 0
    """So many of the settings are in the quick loop."""
    trials: int = 1
    """The requests of the preflight."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """But for text that is lost, which the few tokens of these answers cannot show."""
        return tuple(fault for fault in self.way.faults if fault is not Fault.LOST_TEXT)


_SINGLE_STREAM = Setting("single-stream", False)
_ALL = (SERVER_ACCURACY, *SETTINGS[:3], *SETTINGS[4:], _SINGLE_STREAM)
_OPENAI, _TRTLLM = ("--backend", "openai"), ("--backend", "trtllm")
_COMPLETIONS, _TRT = Way(own_protocol("openai")), Way(own_protocol("trtllm"))
ANSWER_RUNS = (
    AnswerRuns(Way(_SGLANG, cumulative=True), _ALL, quick=1),
    AnswerRuns(Way(_SGLANG), (SERVER, OFFLINE)),
    AnswerRuns(_COMPLETIONS, (SERVER,), _OPENAI),
    AnswerRuns(_TRT, (SERVER_ACCURACY,), _TRTLLM),
    AnswerRuns(Way(_SGLANG, streams=False), (OFFLINE_ACCURACY, OFFLINE, SERVER), quick=1),
    AnswerRuns(replace(_COMPLETIONS, streams=False), (OFFLINE_ACCURACY,), _OPENAI),
    AnswerRuns(
        Way(Protocol("openai", "chat-ids", "text")),
        (SERVER_ACCURACY,),
        (*_OPENAI, "--api", "chat-ids"),
        trials=3,
    ),
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
        return self.only or (TWO if self.outcome.code in (2, 3) else FIVE)


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
        "needs_key",
        "the server wants a key",
        _refused(3, "SGLANG_API_KEY or OPENAI_API_KEY"),
        only=(OFFLINE,),
    ),
    RunFault(
        "gateway",
        "a gateway's page in place of answers",
        _refused(3, "page of a proxy or gateway"),
        only=(OFFLINE,),
    ),
    RunFault(
        "ids_ignored",
        "the server ignores the ids of a chat (`--api chat-ids`)",
        _refused(3, "; use --api "),
        only=(OFFLINE,),
    ),
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
    RunFault("worker_killed", "worker killed", _invalid("killed by SIGKILL", "worker_lost")),
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
    RunFault("journal_cut", "the journal cut short", _invalid("File too large; lift the limit")),
    RunFault("folder_removed", "output folder removed", _invalid("removed")),
    RunFault("folder_replaced", "output folder renamed and made again", _invalid("removed or replaced")),
    RunFault("few_descriptors", "12 open files allowed", _refused(2, "12; raise it (ulimit -n 74)")),
    RunFault(
        "too_few_for_flight",
        "80 open files allowed, for 64 requests in flight",
        _refused(2, "80; raise it (ulimit -n 96)"),
    ),
    RunFault("little_memory", "200 MB of memory allowed", _refused(2, "expected at least 600000; lift it")),
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
