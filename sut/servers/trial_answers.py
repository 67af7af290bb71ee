"""The outcome of a trial request: what is wrong with it, and whether another request may be taken."""

import re

from harness.config.protocol import Api, Protocol, own_protocol
from harness.record.failure_details import OF_ANY_REQUEST, status_of, status_remedy
from harness.record.outcome import Failure, FailureKind, Outcome
from sut.wire.answer_checks import ANOTHER_PROMPT

# APIs that servers may answer without having taken the prompt.
_UNSURE: tuple[Api, ...] = ("chat-ids", "completions-text", "chat")
_REFUSALS = (
    FailureKind.HTTP_STATUS,
    FailureKind.MALFORMED,
    FailureKind.IN_BAND_ERROR,
    FailureKind.UNFINISHED,
    FailureKind.TOKEN_COUNT,
    FailureKind.NO_TOKENS,
    FailureKind.FINISH_REASON,
    FailureKind.OTHER_REQUEST,
)
_PAGE = re.compile(r"(?i)<(!doctype )?html")
_UNRELATED = OF_ANY_REQUEST | {407}


def is_refusal(outcome: Outcome, prompt_tokens: int | None, *, gave_tokens: bool) -> bool:
    """Whether the server answered, so that another request may be taken where this one was not.

    A token that it puts before a prompt (BOS) it puts before every one, and an answer that is broken although
    it has tokens would be so by every API.
    """
    if not isinstance(outcome, Failure):
        return not _one_more(outcome.prompt_tokens, prompt_tokens)
    if outcome.detail.startswith(ANOTHER_PROMPT):
        return True
    return outcome.kind in _REFUSALS and not gave_tokens and _status(outcome) not in _UNRELATED


def _status(failure: Failure) -> int | None:
    """The HTTP status with which a server refused."""
    return status_of(failure.detail) if failure.kind is FailureKind.HTTP_STATUS else None


def what_is_wrong(protocol: Protocol, outcome: Outcome, prompt_tokens: int | None) -> str:
    """What is wrong with a trial's outcome, with the remedy if there is one; "" for nothing."""
    if isinstance(outcome, Failure):
        text = f"the trial request{_by_api(protocol)} failed: {outcome.kind.label}: {outcome.detail}"
        return "; ".join(filter(None, (text, _remedy(protocol, outcome))))
    counted = outcome.prompt_tokens
    if counted is None and (protocol.api in _UNSURE or protocol.answers == "text"):
        return (
            f"the answer{_by_api(protocol)} has no usage.prompt_tokens, so that nothing shows whether the "
            "server took the prompt as it was sent"
        )
    if counted is None or prompt_tokens is None or counted == prompt_tokens:
        return ""
    sent = f"text of {prompt_tokens} tokens" if protocol.text_in else f"prompt of {prompt_tokens} token ids"
    return f"a {sent} was counted as {counted}: {_why(protocol, one_more=_one_more(counted, prompt_tokens))}"


def _one_more(counted: int | None, sent: int | None) -> bool:
    return sent is not None and counted == sent + 1


def _by_api(protocol: Protocol) -> str:
    own = protocol.api == own_protocol(protocol.dialect).api
    return "" if own else f" by --api {protocol.api}"


def _why(protocol: Protocol, *, one_more: bool) -> str:
    """Why a server counts other tokens than those that were sent."""
    if protocol.api == "chat":
        return (
            "the server's chat template makes another prompt than the dataset has, such as by a system "
            "prompt; start it with the template that the dataset was made with"
        )
    added = "the server adds a token, such as the one for the beginning of a text (BOS); start it without"
    if protocol.text_in:
        other = "the server's tokenizer is not the one that the dataset was made with"
        return f"{added}, or {other}" if one_more else other
    if one_more:
        return added
    if protocol.api == "chat-ids":
        return "the server ignores the ids of a chat request and answers an empty chat"
    return "the server does not take ids as they are"


def _remedy(protocol: Protocol, failure: Failure) -> str:
    if failure.detail.startswith(ANOTHER_PROMPT):
        return _why(protocol, one_more=False)
    if failure.kind is FailureKind.TIMEOUT:
        return "a server that compiles at its first request may need a larger --trial-timeout"
    if remedy := status_remedy(status := _status(failure)):
        return remedy
    if (protocol.dialect, protocol.api, status) == ("openai", "generate", 404):
        return "vLLM has this API with --enable-scale-out only"
    if failure.kind is FailureKind.TOKEN_VALUE:
        return (
            "the benchmark's model has no such token: start the server with that model, or name the server's "
            "own with --benchmark"
        )
    if failure.kind is FailureKind.TOO_MANY_TOKENS:
        return (
            "the server, or a gateway before it, does not keep to the limit of a request; another --api, or "
            "another version of it, may"
        )
    if _PAGE.search(failure.detail):
        return "that is the page of a proxy or gateway, not of a server of models: name the server itself"
    return ""
