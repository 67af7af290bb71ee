#!/usr/bin/env python3
"""Tokens each second of CPU of one encoder, the process that gives answers which came as text their ids.

    python benchmarks/answer_encoding.py [--tokenizer FILE] [--tokens 1000]

The texts are pieces of this project's documents. It also measures what an answer costs in the worker: the
text on its way to the encoder, its ids on their way back.
"""

import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.bench import print_table, program_parser, save
from harness.dataset.model_tokenizer import harmony_tokenizer, load_tokenizer
from harness.files import ROOT
from harness.record.outcome import TextCompletion
from sut.encoder.answer_encoder import AnswerEncoder
from sut.encoder.link import EncoderLink
from sut.encoder.process import serve

ANSWERS = 200
_CHARACTERS_OF_A_TOKEN = 4


def main() -> None:
    """Encode the texts alone, and through a channel."""
    parser = program_parser(__doc__)
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json (default: gpt-oss's)")
    parser.add_argument("--tokens", type=int, default=1000, help="of each answer, about (default: 1000)")
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = load_tokenizer(arguments.tokenizer) if arguments.tokenizer else harmony_tokenizer()
    encoder = AnswerEncoder(tokenizer, 1 << 30)
    answers = [answer(tokenizer, text) for text in texts(arguments.tokens)]
    tokens = sum(one.counted or 0 for one in answers)
    alone = cpu_s(time.process_time, lambda: [encoder.encode(one.text, one.counted) for one in answers])
    worker = cpu_s(time.thread_time, lambda: through_channel(encoder, answers))
    rows: list[list[object]] = [
        ["tokens of an answer", tokens / len(answers)],
        ["million tokens for a second of CPU", tokens / alone / 1e6],
        ["encoder, CPU us for an answer", alone * 1e6 / len(answers)],
        ["worker, CPU us for an answer", worker * 1e6 / len(answers)],
    ]
    print_table("answer_encoding: one encoder", ("", "value"), rows)
    save("answer_encoding", {str(name): value for name, value in rows})


def texts(tokens: int) -> list[str]:
    """Pieces of the documents, at random."""
    pages = "".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")))
    chance, size = random.Random(1), tokens * _CHARACTERS_OF_A_TOKEN
    return [pages[at : at + size] for at in (chance.randrange(len(pages) - size) for _ in range(ANSWERS))]


def answer(tokenizer: object, text: str) -> TextCompletion:
    """An answer of which as many tokens were counted as its text has."""
    count = len(tokenizer.encode(text, add_special_tokens=False).ids)  # type: ignore[attr-defined]
    return TextCompletion(text, "stop", None, count)


def cpu_s(clock: Callable[[], float], work: Callable[[], object]) -> float:
    """CPU seconds of the second call."""
    work()
    began = clock()
    work()
    return clock() - began


def through_channel(encoder: AnswerEncoder, answers: list[TextCompletion]) -> None:
    """What a worker does; the encoder is a thread of its own here."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs, encoder))
    ended: list[object] = []
    callbacks: list[Callable[[int], None]] = []
    link = EncoderLink(ours, lambda *end: ended.append(end), lambda fd, mask, call: callbacks.append(call))
    thread.start()
    for number, one in enumerate(answers):
        link.send(number, one)  # type: ignore[arg-type]
        while len(ended) <= number:
            callbacks[-1](1)
            time.sleep(1e-3)
    link.close()
    thread.join()


if __name__ == "__main__":
    main()
