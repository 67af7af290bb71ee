"""The numbers of the official client and ours: of its run, and of both clients' runs on the same server."""

import base64
import json
import os
import subprocess
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from harness.arrays import Integers
from harness.config.benchmark import load_benchmark
from harness.dataset import tokenizer
from harness.dataset.model_tokenizer import harmony_tokenizer
from harness.endpoints.numbers.chat_template import open_template
from harness.endpoints.numbers.event_reader import read_events
from harness.endpoints.numbers.event_record import Answer
from harness.endpoints.numbers.event_writer import write_events
from harness.endpoints.numbers.reference_tokenizer import ReferenceTokenizer, open_reference
from harness.endpoints.numbers.result_summary import summarize
from harness.endpoints.salting import text_after
from harness.endpoints.samples import Samples
from tests.stub import StubServer, expected_words
from tests.stub.protocol import Request
from tests.sut.endpoints.official_client import CLIENT, run_official
from tests.sut.endpoints.rehearsing import PROMPTS, curve_of, point_of, rehearsed

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not CLIENT, reason="HARNESS_ENDPOINTS_CLIENT: no executable of the official client"),
]

TOKENS, CONCURRENCY, REQUESTS = 64, 4, 24
OFFICIAL_KEYS = ("ttft", "tpot", "latency", "output_sequence_lengths", "input_sequence_lengths")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("official")
    (made / "tokenizer").mkdir()
    harmony_tokenizer().save(str(made / "tokenizer" / "tokenizer.json"))
    settings = {"tokenizer_class": "TokenizersBackend", "eos_token": "<|return|>", "chat_template": TEMPLATE}
    (made / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(settings))
    return made


# A thought, the output and tool calls; whitespace around the output is dropped, as some models' templates do.
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message.role }}<|message|>"
    "{% if message.reasoning_content %}<|channel|>{{ message.reasoning_content }}<|end|>{% endif %}"
    "{{ message.content | trim }}"
    "{% for call in message.tool_calls or [] %}<|call|>{{ call.function | tojson }}{% endfor %}"
    "<|end|>{% endfor %}"
)


class Truth:
    """The server's times: of each request's events from the one in which a client sees the first text."""

    def __init__(self, first_event: int) -> None:
        self.first_event = first_event
        self._begun: dict[int, int] = {}

    def gate(self, request: Request, number: int) -> bool:
        """Notes the time of the first text's event; none waits."""
        if number == self.first_event:
            self._begun.setdefault(request.index, time.monotonic_ns())
        return True

    def relative_tpot(self, stub: StubServer, samples: Samples) -> float:
        """TPOT p90 of a client, of what it was at the server: its times p90, and its tokens."""
        counted = stub.requests[-REQUESTS:]
        spans = np.array([each.last_sent_ns - self._begun[each.index] for each in counted])
        seen = samples["complete_ns"] - samples["first_ns"]
        tokens = (TOKENS - 1 - self.first_event) * REQUESTS
        return p90(seen) / p90(spans) * tokens / int(samples["suffix_tokens"].sum())


def p90(values: Integers) -> float:
    return float(np.sort(values)[int(0.9 * (len(values) - 1))])


def test_both_clients_on_one_server(folder):
    """Each by what its server really took: sleeping takes longer while the machine is busy."""
    truth = Truth(first_event=0)
    with StubServer(event_delay_s=0.02, text=tokenizer.decode, event_gate=truth.gate) as stub:
        run = run_official(
            folder, stub.url, PROMPTS, tokens=TOKENS, concurrency=CONCURRENCY, requests=REQUESTS
        )
    theirs = read_events(run, None).samples
    their_tpot = truth.relative_tpot(stub, theirs)

    point = point_of(CONCURRENCY, passes=REQUESTS // len(PROMPTS))
    truth = Truth(first_event=text_after(load_benchmark("gpt-oss-120b")))
    words = partial(expected_words, n=TOKENS)  # as without ids: their text has as many tokens again
    with StubServer(event_delay_s=0.02, event_gate=truth.gate, answers=words) as stub:
        done = rehearsed(
            folder, point, stub.url, curve=curve_of(point, salt_bits=0), tokens=TOKENS, backend="vllm"
        )
    assert done.complete, done.errors
    write_events(folder / point.name, None, ended=True)
    ours = read_events(folder / point.name, None).samples
    our_tpot = truth.relative_tpot(stub, ours)

    assert len(ours) == len(theirs) == REQUESTS
    assert ours["output_tokens"].sum() == pytest.approx(theirs["output_tokens"].sum(), rel=0.01)
    assert our_tpot == pytest.approx(their_tpot, rel=0.01)


def test_its_summary_from_its_events(folder):
    """result_summary.json of the run above, from its events.jsonl; its statistics of early stopping aside."""
    run = folder / "run"
    official = json.loads((run / "performance" / "result_summary.json").read_text())
    same = summarize(read_events(run, folder / "tokenizer"))
    for name in OFFICIAL_KEYS:
        official[name].pop("early_stopping_percentiles", None)
        assert same[name] == flat(official[name]), name
    for name in ("n_samples_issued", "n_samples_completed", "n_samples_failed", "duration_ns", "state",
                 "complete", "finish_reason_counts"):  # fmt: skip
        assert same[name] == official[name], name
    assert (same["qps"], same["tps"]) == pytest.approx((official["qps"], official["tps"]), rel=1e-12)


def flat(block):
    """The block with floats compared to 9 digits: sums and squares depend on the order of additions."""
    if isinstance(block, dict):
        return {name: flat(value) for name, value in block.items()}
    if isinstance(block, list):
        return [flat(value) for value in block]
    return pytest.approx(block, rel=1e-9) if isinstance(block, float) else block


ANSWERS = [
    {"output": ["Hel", "lo  world \n"]},
    {"output": "  all at once "},
    {"output": "The answer is 42.", "reasoning": ["Let", " me think.\n\nSo"]},
    {"output": ["12", "34 <|end|> 5"], "reasoning": None},
    {"output": "", "reasoning": ["only a thought"]},
    {"output": ["a", "b"], "reasoning": "not streamed"},
    {"output": "", "tool_calls": [[{"index": 0, "id": "1", "function": {"name": "f", "arguments": '{"a"'}}],
                                  [{"index": 0, "function": {"arguments": ": 1}"}}]]},
    {"output": [], "reasoning": None},
]  # fmt: skip

COUNT = """
import asyncio, json, sys
from inference_endpoint.core.types import TextModelOutput
from inference_endpoint.async_utils.services.metrics_aggregator.token_metrics import BatchTokenizer
from inference_endpoint.async_utils.services.metrics_aggregator.tokenization import MessageInput, TextInput

def items(answer):
    if answer.reasoning or answer.tool_calls:
        return [MessageInput(*answer.as_message_parts()),
                MessageInput(*answer.as_message_parts_after_first_chunk())]
    return [TextInput(str(answer)), TextInput(answer.text_after_first_chunk())]

async def main():
    counter = BatchTokenizer(sys.argv[1], live_workers=1, n_workers=0)
    answers = [TextModelOutput(**each) for each in json.load(sys.stdin)]
    flat = [item for answer in answers for item in items(answer)]
    print(json.dumps(await counter.count_batch_async(flat, asyncio.get_running_loop())))
    counter.close()

asyncio.run(main())
"""


def test_counts_of_every_form_of_answer(folder):
    python = Path(CLIENT).with_name("python")
    done = subprocess.run(
        [python, "-c", COUNT, folder / "tokenizer"],
        input=json.dumps(ANSWERS),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    counts = json.loads(done.stdout.splitlines()[-1])
    answers = [Answer(**{name: nested(value) for name, value in each.items()}) for each in ANSWERS]
    # The template decides here, so it must not be the built-in one of the same tokenizer.
    counter = open_reference(folder / "tokenizer")
    template = open_template(folder / "tokenizer", counter.count_texts)
    reader = ReferenceTokenizer(harmony_tokenizer(), template)
    totals, suffixes = reader.count_answers(answers)
    assert (totals.tolist(), suffixes.tolist()) == (counts[::2], counts[1::2])


def nested(value):
    return tuple(map(nested, value)) if isinstance(value, list) else value


HARMONY = """
import json, sys
from openai_harmony import HarmonyEncodingName, Message, Role, load_harmony_encoding

encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)

def tokens(channel, text):
    message = Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)
    return len(encoding.render(message))

for output, thought in json.load(sys.stdin):
    counted = tokens("final", output) - tokens("final", "")
    print(counted + (tokens("analysis", thought) if thought else 0))
"""


def test_the_frame_of_a_thought(folder):
    """openai-harmony renders a thought and an output as gpt-oss's chat template does."""
    cases = [("Final  answer.\n", None), ("So: 42.", "We think.\n\n  Hard"), ("", "cut off"), ("é🙂", " \n")]
    lines = (b"%b %d\n" % (base64.b64encode(token), rank) for token, rank in tokenizer.ranks().items())
    (folder / "o200k_base.tiktoken").write_bytes(b"".join(lines))
    done = subprocess.run(
        [Path(CLIENT).with_name("python"), "-c", HARMONY],
        input=json.dumps(cases),
        env=os.environ | {"TIKTOKEN_ENCODINGS_BASE": str(folder)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    totals, _ = open_reference(folder / "tokenizer").count_answers([Answer(*case) for case in cases])
    assert totals.tolist() == list(map(int, done.stdout.split()))
