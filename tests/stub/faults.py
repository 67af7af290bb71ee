"""The ways in which a server can fail, and when it does.

What each does is one function: in content.py, where the answer says something wrong, or in transport.py,
where it is sent wrongly.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from .protocol import Request

ONLY_STREAMS = "only in streams"


class Fault(Enum):
    """What goes wrong with one answer: in words, the failure as which it must end, "" where it is complete,
    and that of an answer that is not streamed, where it is another one."""

    HTTP_400_JSON = "400 with a JSON body", "http_status"
    HTTP_401 = "401 with a JSON body", "http_status"
    HTTP_404 = "404 with a JSON body", "http_status"
    HTTP_413_HTML = "413 with a gateway's HTML", "http_status"
    HTTP_429_EMPTY = "429 with an empty body", "http_status"
    HTTP_500 = "500 with a JSON body", "http_status"
    HTTP_500_HTML = "500 with HTML and escape sequences", "http_status"
    HTTP_500_EMPTY = "500 with an empty body", "http_status"
    HTTP_503 = "503 with Retry-After", "http_status"
    REDIRECT = "redirect", "http_status"
    NOT_HTTP = "bytes that are not HTTP", "http_protocol"
    EMPTY_ANSWER = "200 without a body", "unfinished", "malformed"
    RESET_AT_ONCE = "reset before the answer", "no_response"
    RESET_BEFORE_FIRST = "reset before the first token", "truncated"
    RESET_IN_FIRST = "reset while the first token arrives", "truncated"
    RESET_AFTER_FIRST = "reset after the first token", "truncated"
    RESET_MIDDLE = "reset in the middle", "truncated"
    CLOSE_AT_ONCE = "closed before the answer", "no_response"
    CLOSE_AFTER_HEADERS = "closed after the headers", "truncated"
    CUT_CHUNKED = "chunked, cut between two chunks", "truncated"
    CUT_IN_CHUNK = "chunked, cut inside a chunk", "truncated"
    CUT_LENGTH = "with Content-Length, cut", "truncated"
    CUT_UNFRAMED = "without framing, cut inside an event", "truncated"
    CUT_UNFRAMED_BETWEEN = "without framing, cut between two events", "unfinished", ONLY_STREAMS
    ERROR_AT_START = "error event instead of tokens", "in_band_error"
    ERROR_MIDDLE = "error event after some tokens", "in_band_error"
    ERROR_GOES_ON = "error in the middle of a stream that continues", "in_band_error"
    ERROR_EVENT = "`event: error` in a stream that continues", "in_band_error", ONLY_STREAMS
    MALFORMED_JSON = "malformed JSON", "malformed"
    MALFORMED_MIDDLE = "malformed JSON in the middle, with a count", "malformed"
    GZIP = "compressed without being asked", "malformed"
    HTML = "200 with an HTML page", "malformed"
    ABORT = "finish reason abort", "aborted"
    ABORT_GOES_ON = "abort in the middle of a stream that continues", "aborted", ONLY_STREAMS
    NO_FINISH = "no finish reason", "unfinished"
    UNKNOWN_REASON = "finish reason cancelled", "finish_reason"
    EMPTY_REASON = "empty finish reason", "finish_reason"
    CONTENT_FILTER = "finish reason content_filter", "finish_reason"
    TOOL_CALLS = "finish reason tool_calls", "finish_reason"
    TWO_ENDS = "two events with a finish reason", "after_end", ONLY_STREAMS
    WRONG_COUNT = "ids disagree with the count", "token_count"
    SHRINKING_IDS = "ids shrink", "token_count", ONLY_STREAMS
    DUPLICATED_ID = "an id twice", "token_count"
    SKIPPED_ID = "an id left out", "token_count"
    CHANGED_IDS = "ids sent earlier change", "token_count", ONLY_STREAMS
    SWAPPED_MIDDLE = "ids swapped in the middle", "token_count", ONLY_STREAMS
    NEGATIVE_ID = "negative id", "token_value"
    HUGE_ID = "id beyond the vocabulary", "token_value"
    FLOAT_ID = "fractional id", "malformed"
    NAN_ID = "NaN as an id", "malformed"
    ZERO_TOKENS = "no token", "no_tokens"
    OTHER_ID = "the id of another request", "other_request"
    ID_CHANGES = "another id in the middle", "other_request", ONLY_STREAMS
    OTHER_PROMPT = "the ids of another prompt", "other_request"
    OTHER_MODEL = "another model or version of weights", "other_model"
    OTHER_PROMPT_COUNT = "another number of prompt tokens in the middle", "token_count", ONLY_STREAMS
    OTHER_INDEX = "an answer of index 1", "malformed"
    TWO_ANSWERS = "two answers where one was asked for", "malformed"
    ERROR_INSIDE = "an error object inside of `meta_info` or of a choice", "in_band_error"
    ERROR_OBJECT = '`"object":"error"` and a message beside ids', "in_band_error"
    ERRORS_BESIDE = "a list of errors beside ids", "in_band_error"
    STATUS_BESIDE = "the status code 500 beside ids", "in_band_error"
    DETAIL_BESIDE = "an unknown text beside ids", "in_band_error"
    FLAG_BESIDE = "an unknown flag that is true beside ids", "in_band_error"
    MESSAGE_AT_END = "a message beside the finish reason stop", "in_band_error"
    KEY_TWICE = "a key twice", "malformed"
    TRAILER_ERROR = "an error in a trailer", "in_band_error"
    EVENT_ABORT = "`event: abort` in a stream that continues", "in_band_error", ONLY_STREAMS
    EVENT_ERROR_CR = "`event: error`, its lines ended by CR", "in_band_error", ONLY_STREAMS
    HTML_INSIDE = "HTML between two events", "malformed", ONLY_STREAMS
    RESPONSE_INSIDE = "the head of another response between two events", "malformed", ONLY_STREAMS
    AFTER_DONE = "an event after the end mark", "after_end", ONLY_STREAMS
    TOO_MANY_TOKENS = "more tokens than asked for", "too_many_tokens"
    HUGE_EVENT = "an event of 5 MB", "too_large"
    ENDLESS_EVENT = "an event without end", "too_large"
    ENDLESS_HEADERS = "headers without end", "too_large"
    SLOW_HEADERS = "headers slower than the deadline", "timeout"
    SILENT = "silence before the answer", "timeout"
    SILENT_AFTER_HEADERS = "silence before the first token", "timeout"
    SILENT_AFTER_FIRST = "silence after the first token", "timeout"
    CRLF = "CRLF line ends"
    BOM = "a byte order mark before the first event"
    BYTEWISE = "every byte alone"
    SPLIT_UTF8 = "UTF-8 characters cut in two"
    HALF_CHARACTER = "half a character in a text"
    NO_ERRORS = "`error` that is false, `errors` and `detail` that are empty"
    NEW_COUNTERS = "counters that no document names"
    LENGTH_TRAILER = "Content-Length in a trailer"
    HTTP_1_0 = "HTTP/1.0, the end of the connection is the end"
    RESET_AFTER_ALL = "the same, with a reset in place of the close"
    GARBAGE_AFTER = "garbage after a complete answer"
    SECOND_RESPONSE = "a second answer, to no request"
    # Of OpenAI's APIs.
    NO_USAGE = "no usage", "token_count"
    NULL_USAGE = "usage that is null", "token_count"
    REFUSAL = "a text in `refusal`", "in_band_error"
    OTHER_TEMPLATE = "a prompt that has more tokens, as by a template's system prompt", "token_count"
    EMPTY_CHAT = "an empty chat in place of the prompt", "token_count"
    UNCOUNTED_PROMPT = "no count of the prompt's tokens, which the trial answer had", "token_count"
    # Of text: without ids the server's count is compared with the ids of the text.
    EMPTY_TEXT = "counted tokens, but no text", "no_tokens"
    LOST_TEXT = "text of the first token alone", "token_count"
    HALVED_CHARACTER = "the halves of a character in two events", "", ONLY_STREAMS
    # Of streams whose events carry only what is new; in the others they do no harm.
    REPEATED_EVENT = "an event twice, where each has only what is new", "token_count"
    SKIPPED_EVENT = "an event left out, where each has only what is new", "token_count"
    # Complete answers that say something about the server or the way to it.
    ONE_TOKEN = "an answer of one token"
    ONE_PIECE = "all events at once, at the end"

    def __init__(self, what: str, failure: str = "", whole: str | None = None) -> None:
        self.what, self.failure = what, failure
        self.whole = failure if whole is None else whole

    @property
    def late(self) -> bool:
        """Whether it is noticed at the deadline, the others at once."""
        return self.failure == "timeout"


# What only some answers can show: those with ids; with OpenAI's usage; of a chat; of text that is encoded.
OF_IDS = frozenset({Fault.NEGATIVE_ID, Fault.HUGE_ID, Fault.FLOAT_ID, Fault.NAN_ID, Fault.SHRINKING_IDS})
OF_USAGE = frozenset({Fault.NO_USAGE, Fault.NULL_USAGE})
OF_CHATS = frozenset({Fault.REFUSAL})
OF_TEXT = frozenset({Fault.EMPTY_TEXT, Fault.LOST_TEXT, Fault.HALVED_CHARACTER})
# What the number of the query's tokens shows.
OF_PROMPTS = frozenset({Fault.OTHER_TEMPLATE, Fault.EMPTY_CHAT, Fault.UNCOUNTED_PROMPT})
# What only a stream can show that repeats what it said, and only one that does not.
CUMULATIVE_ONLY = frozenset({Fault.CHANGED_IDS, Fault.SWAPPED_MIDDLE})
INCREMENTAL_ONLY = frozenset({Fault.REPEATED_EVENT, Fault.SKIPPED_EVENT})

Schedule = Callable[[Request], Fault | None]


def every(k: int, fault: Fault, first: int = 0) -> Schedule:
    """Every k-th generation request fails, from arrival number ``first`` on."""
    return lambda request: fault if request.index >= first and (request.index - first) % k == 0 else None


def as_schedule(faults: "Schedule | Fault | Sequence[Fault | None] | None") -> Schedule:
    """One fault for all requests, a list in order of arrival, or a rule."""
    if faults is None or isinstance(faults, Fault):
        return lambda request: faults
    if callable(faults):
        return faults
    return lambda request: faults[request.index] if request.index < len(faults) else None
