"""What the outcome of a trial request shows: what is wrong, and whether another API may be tried."""

import numpy as np
import pytest

from harness.config.protocol import Protocol
from harness.record.outcome import Completion, Failure, FailureKind
from sut.servers.trial_answers import is_refusal, what_is_wrong
from sut.wire.answer_checks import ANOTHER_PROMPT

UNCOUNTED = (
    "has no usage.prompt_tokens, so that nothing shows whether the server took the prompt as it was sent"
)
TEMPLATE = (
    "the server's chat template makes another prompt than the dataset has, such as by a system prompt; "
    "start it with the template that the dataset was made with"
)
ADDED = "the server adds a token, such as the one for the beginning of a text (BOS); start it without"
OTHER = "the server's tokenizer is not the one that the dataset was made with"
IDS, TEXT_BACK = Protocol("openai", "completions"), Protocol("openai", "completions", "text")
CHAT_IDS, CHAT = Protocol("openai", "chat-ids"), Protocol("openai", "chat", "text")
CHAT_OF_IDS, TEXT = Protocol("openai", "chat", "ids"), Protocol("openai", "completions-text", "ids")
GENERATE = Protocol("openai", "generate")


def answered(counted):
    return Completion(np.ones(4, np.int32), "length", counted)


@pytest.mark.parametrize(
    ("protocol", "counted", "sent", "said"),
    [
        (IDS, 10, 10, ""),
        (IDS, None, 10, ""),  # the ids themselves are what the API takes
        (TEXT_BACK, None, 10, f"the answer {UNCOUNTED}"),
        (CHAT_IDS, None, 10, f"the answer by --api chat-ids {UNCOUNTED}"),
        (CHAT_OF_IDS, None, None, f"the answer by --api chat {UNCOUNTED}"),
        (TEXT, None, 10, f"the answer by --api completions-text {UNCOUNTED}"),
        (CHAT, 12, None, ""),  # the tokens of a text of ours are not known
        (IDS, 11, 10, f"a prompt of 10 token ids was counted as 11: {ADDED}"),
        (
            IDS,
            12,
            10,
            "a prompt of 10 token ids was counted as 12: the server does not take ids as they are",
        ),
        (TEXT, 11, 10, f"a text of 10 tokens was counted as 11: {ADDED}, or {OTHER}"),
        (TEXT, 9, 10, f"a text of 10 tokens was counted as 9: {OTHER}"),
        (CHAT, 11, 10, f"a text of 10 tokens was counted as 11: {TEMPLATE}"),
        (
            CHAT_IDS,
            9,
            10,
            "a prompt of 10 token ids was counted as 9: "
            "the server ignores the ids of a chat request and answers an empty chat",
        ),
    ],
)
def test_what_the_count_of_a_prompt_shows(protocol, counted, sent, said):
    assert what_is_wrong(protocol, answered(counted), sent) == said


@pytest.mark.parametrize(
    ("protocol", "kind", "detail", "remedy"),
    [
        (IDS, FailureKind.TIMEOUT, "", "a server that compiles at its first request may need a larger"),
        (IDS, FailureKind.HTTP_STATUS, "HTTP 407: ", "a proxy before the server asks for a password"),
        (IDS, FailureKind.HTTP_STATUS, "HTTP 502: ", "a gateway reaches no server behind it"),
        (GENERATE, FailureKind.HTTP_STATUS, "HTTP 404: ", "vLLM has this API with --enable-scale-out only"),
        (GENERATE, FailureKind.HTTP_STATUS, "HTTP 400: ", None),
        (IDS, FailureKind.HTTP_STATUS, "HTTP 404: ", None),
        (IDS, FailureKind.MALFORMED, "not JSON: <html>", "that is the page of a proxy or gateway"),
        (
            IDS,
            FailureKind.TOKEN_VALUE,
            "token id 9",
            "the benchmark's model has no such token: start",
        ),
        (IDS, FailureKind.TOO_MANY_TOKENS, "got 9 tokens", "the server, or a gateway before it, does not"),
        (CHAT_IDS, FailureKind.OTHER_REQUEST, f"{ANOTHER_PROMPT}: [100]", "the server ignores the ids"),
    ],
)
def test_the_remedy_of_a_failure(protocol, kind, detail, remedy):
    text = what_is_wrong(protocol, Failure(kind, detail), 10)
    asked = "" if protocol is IDS else f" by --api {protocol.api}"
    before = f"the trial request{asked} failed: {kind.label}: {detail}"
    assert text == before if remedy is None else text.startswith(f"{before}; {remedy}")


@pytest.mark.parametrize(
    ("outcome", "gave_tokens", "refused"),
    [
        (answered(9), True, True),
        (answered(11), True, False),  # a token that every prompt gets
        (Failure(FailureKind.HTTP_STATUS, "HTTP 400: "), False, True),
        (Failure(FailureKind.HTTP_STATUS, "HTTP 401: "), False, False),
        (Failure(FailureKind.HTTP_STATUS, "HTTP 407: "), False, False),  # of a proxy before the server
        (Failure(FailureKind.TOKEN_COUNT, ""), False, True),
        (Failure(FailureKind.TOKEN_COUNT, ""), True, False),  # broken by every API
        (Failure(FailureKind.OTHER_REQUEST, f"{ANOTHER_PROMPT}: [100]"), True, True),
        (Failure(FailureKind.TIMEOUT, ""), False, False),
    ],
)
def test_another_request_may_be_taken_where_the_server_answered(outcome, gave_tokens, refused):
    assert is_refusal(outcome, 10, gave_tokens=gave_tokens) is refused


def test_an_answer_to_a_text_of_unknown_tokens_is_not_one_token_more():
    assert is_refusal(answered(11), None, gave_tokens=True)
