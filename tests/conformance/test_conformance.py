"""docs/reference/conformance.md shows what the replay of the recordings shows."""

from harness.config.protocol import Protocol
from tests.conformance.page import PAGE, shown, written
from tests.conformance.replay import replay, said_ids
from tests.conformance.rows import SERVERS, Row, recordings
from tests.recorded_wires import exchange


def test_the_page_shows_the_replay():
    text = PAGE.read_text()
    assert text == written(text), "write it again: python -m tests.conformance.page"


def test_every_row_has_a_recording():
    assert all(any(recordings(server, row)) for server in SERVERS for row in server.rows)


def test_the_truth_is_read_by_other_code():
    """The scripted model says 22 tokens to each server; they end with <|return|>."""
    said = [
        said_ids(exchange(name))
        for name in ("vllm-0.32.0/harmony-completions-ids", "vllm-0.32.0/harmony-completions-ids-stream")
    ]
    said += [said_ids(exchange("sglang-0.5.23/native-ids-stream"))]
    said += [said_ids(exchange("llamacpp-2026.10.11549/harmony-native-ids"))]
    assert {tuple(ids) for ids in said} == {tuple(said[0])}
    assert (len(said[0]), said[0][-1]) == (22, 200002)


def test_text_that_lacks_tokens_is_not_shown_as_exact():
    one = exchange("vllm-0.32.0/harmony-completions-text")
    assert len(replay(one, Protocol("openai", "completions-text", "text")).ids) == 21
    row = Row(Protocol("openai", "completions-text", "text"), "")
    assert shown(one, row) == "all but the end token"
    assert (
        shown(exchange("vllm-0.32.0/harmony-chat"), Row(Protocol("openai", "chat", "text"), ""))
        == "12 ids for 22"
    )
    assert shown(exchange("vllm-0.32.0/n-2"), row) == "refused: 400"
