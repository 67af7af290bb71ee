"""In place of an inference server: gives the right answers to the made-up datasets.

    python -m tests.documents.server ENGINE FLAG...     ENGINE: sglang, vllm, trtllm, llama.cpp

Listens where the engine with these flags would, in place of another engine that was there before, and returns
when it is ready. The server itself stays until its process group ends.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

from tests.documents import made_up

OFFLINE_ANSWER_S = 1.5 * made_up.DURATION_MS / 1000  # with all queries at once, so long is the run
_PORT = {"sglang": 30000, "vllm": 8000, "trtllm": 8000, "llama.cpp": 8080}
_OWNER = {"sglang": "sglang", "vllm": "vllm", "trtllm": "tensorrt_llm"}  # in /v1/models


def main() -> None:
    engine, *flags = sys.argv[1:]
    port = int(_value(flags, "--port") or _PORT[engine])
    path = _value(flags, "--model-path")
    model = next((name for name in SERVE if name in path), "")
    record, kind = Path(os.environ["STAND_INS"], f"server-{port}"), f"{engine}-{model}"
    if _is_kept(record, kind):
        return
    child = os.fork()
    if child == 0:
        if engine == "llama.cpp":
            serve_llamacpp(port)
        else:
            SERVE.get(model, serve_stub)(port, _OWNER[engine])
        os._exit(0)
    record.write_text(f"{kind} {child}")
    while not _is_healthy(port):
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            sys.exit("the stand-in server ended")
        time.sleep(0.05)


def _value(flags: list[str], name: str) -> str:
    return flags[flags.index(name) + 1] if name in flags else ""


def _is_kept(record: Path, engine: str) -> bool:
    """Whether the engine listens there already; another one is ended."""
    if not record.exists():
        return False
    listening, pid = record.read_text().split()
    if listening == engine:
        return True
    os.kill(int(pid), signal.SIGKILL)
    while not _is_free(int(record.name.partition("-")[2])):
        time.sleep(0.05)
    return False


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server(("0.0.0.0", port)):
        return True
    return False


def _is_healthy(port: int) -> bool:
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
        return answer.status == 200
    return False


def wait_for_the_test_to_end() -> None:
    """The end of a test kills the process group; this is for a test that is killed itself."""
    while Path("/proc", os.environ["TEST_PID"]).exists():
        time.sleep(1)


def serve_stub(port: int, owner: str) -> None:
    """SGLang's protocol and OpenAI's, with all facts of a node with 8 GPUs."""
    from tests.made_up.synthetic import long_answers, truth
    from tests.stub import Facts

    rows = made_up.rows()
    known = {row.prompt for row in rows}
    ungraded = long_answers(made_up.TOKENS)

    def answers(wrong_each):
        right = truth(rows, wrong_each=wrong_each)
        return lambda prompt: (right if tuple(prompt) in known else ungraded)(prompt)

    # No two runs of a submission may have the same log, so streamed answers are less often right.
    serve_answers(port, answers(len(rows)), Facts(dp_size=8, owner=owner), streamed=answers(9))


def serve_llama_stub(port: int, owner: str) -> None:
    """Summaries that share words with the references."""
    from tests.harness.submission.recorded_runs import FACTS, ending

    serve_answers(port, ending(), replace(FACTS, owner=owner))


def serve_deepseek_stub(port: int, owner: str) -> None:
    """Mostly right answers to numbered questions."""
    from tests.harness.submission.recorded_runs import RECIPES
    from tests.made_up.deepseek_r1 import DEEPSEEK, answers

    answer = answers(made_up.R1_COMPOSITION, made_up.R1_TOKENS, spread=0)
    serve_answers(port, answer, replace(RECIPES[DEEPSEEK.name].facts, owner=owner))


def serve_answers(port: int, answer, facts, streamed=None) -> None:
    """These answers, Offline's so slowly that the run has its length; ``streamed``: others to streams."""
    from tests.made_up.synthetic import AnsweringServer

    class Server(AnsweringServer):
        async def _generate(self, exchange):
            streams = exchange.request.streams
            if not streams:
                await asyncio.sleep(OFFLINE_ANSWER_S)
            self._answer_of = streamed if streams and streamed else answer
            await super()._generate(exchange)

    with Server(answer, host="0.0.0.0", port=port, facts=facts):
        wait_for_the_test_to_end()


# By a part of the model's path.
SERVE = {"Llama-3.1": serve_llama_stub, "DeepSeek-R1": serve_deepseek_stub}


def serve_llamacpp(port: int) -> None:
    """The real llama.cpp of the embedded engine, with its tiny model."""
    import xllamacpp

    from sut.servers.embedded.tiny_models import tiny_model

    params = xllamacpp.CommonParams()
    params.model.path = str(tiny_model("tiny-gpt-oss", Path(".cache")).path)
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_parallel, params.n_ctx = 16, 16 * 4096
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = params.endpoint_slots = True
    params.warmup = params.ui = False
    server = xllamacpp.Server(params)
    wait_for_the_test_to_end()
    del server


if __name__ == "__main__":
    main()
