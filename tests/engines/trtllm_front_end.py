"""trtllm-serve's own HTTP front end over an engine that is made up: a program for a Python with torch.

The files of ``trtllm_sources`` are real: request models, post-processing, results, the server. Every other
module of ``tensorrt_llm`` that they import stands in for the real one here, with what these files use of it.
So an answer proves the front end's bytes, not an engine's tokens. What the engine does is written in the
prompt: see ``Job``.

Usage: trtllm_front_end.py SOURCES VOCABULARY MODEL_FOLDER PORT [MODEL_FOLDER PORT]...
"""

import asyncio
import base64
import enum
import functools
import gzip
import importlib
import importlib.abc
import importlib.machinery
import itertools
import sys
import time
import types
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PACKAGE = "tensorrt_llm"
END_ID, STOP_WORD = 200002, 200012
VOCABULARY = 201088


class FinishReason(enum.Enum):
    """As in the C++ runtime's bindings."""

    NOT_FINISHED = 0
    END_ID = 1
    STOP_WORDS = 2
    LENGTH = 3
    TIMED_OUT = 4
    CANCELLED = 5


@dataclass(frozen=True)
class Job:
    """What the engine does, by the first three ids of a prompt; it answers with the others, over and over.

    A prompt of harmony messages, which begins with another id, is answered with HARMONY, three ids a step.
    """

    ending: int
    """An index of ENDINGS."""
    tokens: int
    """New tokens, with the end token; never more than the request allows."""
    step: int
    """New tokens of an iteration."""


ENDINGS = (
    "end",
    "stop word",  # another end token of generation_config.json
    "no end token",  # as with the TRTLLMSampler, which does not return it
    "timeout",
    "cancelled",
    "error",  # in mid-answer
    "error at once",
    "refused",
    "never",  # ends, but for the limit of tokens, one token each 50 ms
)
_REASONS = {
    "end": FinishReason.END_ID,
    "stop word": FinishReason.STOP_WORDS,
    "no end token": FinishReason.END_ID,
    "timeout": FinishReason.TIMED_OUT,
    "cancelled": FinishReason.CANCELLED,
}
_LASTS = {"end": END_ID, "stop word": STOP_WORD}
# <|channel|>analysis<|message|> the quick<|end|><|start|>assistant<|channel|>final<|message|> brown fox jumps
HARMONY = [
    200005,
    35644,
    200008,
    290,
    4853,
    200007,
    200006,
    173781,
    200005,
    17196,
    200008,
    19705,
    68347,
    65613,
]
ENGINE_ERROR = "CUDA error: an illegal memory access was encountered"
REFUSAL = "the prompt length exceeds max_num_tokens"


def job_of(prompt: list[int]) -> Job:
    """What the engine does for this prompt."""
    return Job(*prompt[:3]) if prompt[0] < len(ENDINGS) else Job(0, len(HARMONY) + 1, 3)


def answer_of(prompt: list[int], most: int) -> tuple[list[int], FinishReason]:
    """The ids that the engine returns, at most ``most``, and why it ends."""
    job = job_of(prompt)
    ending = ENDINGS[job.ending]
    total = most if ending == "never" else min(job.tokens, most)
    words = prompt[3:] if prompt[0] < len(ENDINGS) else HARMONY
    ids = list(itertools.islice(itertools.cycle(words), total))
    if total == most:
        return ids, FinishReason.LENGTH
    return [*ids[: total - (ending in _LASTS)], *_last(ending)], _REASONS.get(ending, FinishReason.LENGTH)


def _last(ending: str) -> list[int]:
    return [_LASTS[ending]] if ending in _LASTS else []


# -- the engine


@dataclass
class Result:
    """As the bindings' Result."""

    output_token_ids: list[list[int]]
    finish_reasons: list[FinishReason]
    is_final: bool
    cached_tokens: int = 0
    decoding_iter: int = 1
    avg_decoded_tokens_per_iter: float = 1.0
    sequence_index: int = 0
    context_phase_params: None = None
    cum_log_probs: None = None
    log_probs: None = None
    generation_logits: None = None
    context_logits: None = None
    request_perf_metrics: None = None


@dataclass
class Response:
    """As the bindings' Response."""

    result: Result | None
    error_msg: str = ""

    def has_error(self) -> bool:
        """Whether the request failed in the engine."""
        return bool(self.error_msg)


class RequestError(Exception):
    """As the executor raises for a request that it refuses or that fails."""


class Engine:
    """Stands in for LLM: answers as each prompt says."""

    args = SimpleNamespace(
        trust_remote_code=False,
        num_postprocess_workers=0,
        return_perf_metrics=False,
        gather_generation_logits=False,
        backend="pytorch",
        reasoning_parser=None,
    )
    llm_id = "made-up"

    def __init__(self, folder: Path, vocabulary: Path) -> None:
        self._hf_model_dir = str(folder)
        self.tokenizer = Tokenizer(vocabulary)
        self._numbers = itertools.count()
        self._asked: list[dict[str, Any]] = []
        self._aborted: list[int] = []
        self._running: dict[int, asyncio.Task[None]] = {}

    def generate_async(self, inputs: Any, sampling_params: Any, streaming: bool = False, **_: Any) -> Any:
        """A promise, as LLM.generate_async gives it."""
        prompt = inputs if isinstance(inputs, list) else inputs.get("prompt_token_ids")
        if prompt is None:
            prompt = self.tokenizer.encode(inputs["prompt"])
        job = job_of(prompt)
        ending = ENDINGS[job.ending]
        if ending == "refused":
            raise RequestError(REFUSAL)
        if ending == "stop word":  # newer versions do so themselves
            sampling_params.stop_token_ids = [STOP_WORD]
        sampling_params._setup(self.tokenizer, None, None)
        number = next(self._numbers)
        self._asked.append(_plain(sampling_params) | {"prompt": prompt, "streaming": bool(streaming)})
        request = SimpleNamespace(
            id=number,
            sampling_params=sampling_params,
            postproc_params=None,
            streaming=bool(streaming),
            prompt_token_ids=prompt,
        )
        promise = _promise_type()(request, self)
        work = self._generate(promise, job, bool(streaming))
        self._running[number] = asyncio.get_running_loop().create_task(work)
        return promise

    async def _generate(self, promise: Any, job: Job, streaming: bool) -> None:
        ids, reason = answer_of(promise.prompt_token_ids, promise.sampling_params.max_tokens)
        ending, put = ENDINGS[job.ending], promise.aqueue.sync_q.put
        steps = [ids[at : at + job.step] for at in range(0, len(ids), job.step)]
        if ending == "no end token":  # which has taken an iteration of its own
            steps.append([])
        for place, step in enumerate(steps):
            await asyncio.sleep(0.05 if ending == "never" else 0)
            if ending == "error at once" or (ending == "error" and place == len(steps) // 2):
                put(Response(None, ENGINE_ERROR))
                break
            final = place == len(steps) - 1
            if streaming:
                put(Response(Result([step], [reason if final else FinishReason.NOT_FINISHED], final)))
            elif final:
                put(Response(Result([ids], [reason], is_final=True)))
        self._running.pop(promise.request_id, None)

    def abort_request(self, number: int) -> None:
        """As the executor's: a client hung up."""
        self._aborted.append(number)
        if (task := self._running.pop(number, None)) is not None:
            task.cancel()

    def use_ray_queue(self) -> bool:
        """As the executor's."""
        return False

    def input_processor(self, inputs: dict[str, Any], _: Any) -> tuple[list[int], None]:
        """Text to ids."""
        return self.tokenizer.encode(inputs["prompt"]), None

    async def get_stats_async(self, _: float) -> Any:
        """What /metrics shows: here, what the engine was asked and what was aborted."""
        yield {"asked": self._asked, "aborted": self._aborted, "running": len(self._running)}

    def background_error(self, error: str | None = None) -> None:
        """As the executor's error handler."""
        if error:
            raise RequestError(error)

    def shutdown(self) -> None:
        """As LLM's."""


def _plain(sampling_params: Any) -> dict[str, Any]:
    """The plain values of the sampling parameters."""
    values = {name: getattr(sampling_params, name) for name in sampling_params.__dataclass_fields__}
    kept = (int, float, str, bool, type(None))
    return {name: value for name, value in values.items() if isinstance(value, kept) and name[0] != "_"}


class Tokenizer:
    """gpt-oss's, out of o200k_base's compressed ranks; text becomes the ids of its bytes."""

    vocab_size = VOCABULARY
    eos_token_id = pad_token_id = END_ID

    def __init__(self, vocabulary: Path) -> None:
        self.name_or_path = str(vocabulary)
        self.tokenizer = self
        lines = gzip.decompress(vocabulary.read_bytes()).split(b"\n")
        self._ids = {
            base64.b64decode(word): int(rank) for word, rank in (line.split() for line in lines if line)
        }
        self._words = {rank: word for word, rank in self._ids.items()}
        self._specials = {END_ID: b"<|return|>", STOP_WORD: b"<|call|>"}

    def decode(self, ids: list[int], skip_special_tokens: bool = True, **_: Any) -> str:
        """As TransformersTokenizer's."""
        specials = {} if skip_special_tokens else self._specials
        words = (self._words.get(number) or specials.get(number, b"") for number in ids)
        return b"".join(words).decode("utf-8", "replace")

    def encode(self, text: str, **_: Any) -> list[int]:
        """As TransformersTokenizer's."""
        return [self._ids[bytes([byte])] for byte in text.encode()]


@functools.cache
def _promise_type() -> type:
    """llmapi's RequestOutput: a GenerationResult that detokenizes."""
    result = importlib.import_module(f"{PACKAGE}.executor.result")

    class RequestOutput(result.DetokenizedGenerationResultBase, result.GenerationResult):  # type: ignore[name-defined]
        def __init__(self, request: Any, engine: Engine) -> None:
            result.GenerationResult.__init__(self, request, engine.background_error, engine)
            self.tokenizer = engine.tokenizer

    return RequestOutput


# -- what stands in for the rest of tensorrt_llm


class AsyncQueue:
    """llmapi's queue of responses; its ``sync_q`` is filled by the engine."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self.sync_q = SimpleNamespace(put=self._queue.put_nowait)

    async def get(self, timeout: float | None = None) -> Any:
        """The next response."""
        return await asyncio.wait_for(self._queue.get(), timeout)


@dataclass(kw_only=True)
class PostprocArgs:
    """As executor/postproc_worker.py's."""

    first_iteration: bool = True
    num_prompt_tokens: int | None = None
    tokenizer: Any = None


@dataclass
class PostprocParams:
    """As executor/postproc_worker.py's."""

    post_processor: Any = None
    postproc_args: Any = None


@dataclass
class DisaggregatedParams:
    """As disaggregated_params.py's, as far as the front end reads it."""

    request_type: str | None = None
    first_gen_tokens: list[int] | None = None
    ctx_request_id: int | None = None
    opaque_state: bytes | None = None
    draft_tokens: list[int] | None = None


class MultimodalDataTracker:
    """As inputs/utils.py's, for messages of text."""

    def __init__(self, *_: Any) -> None:
        pass

    def placeholder_counts(self) -> dict[str, int]:
        """None."""
        return {}

    async def retrieve_all_async(self) -> None:
        """None."""


@dataclass
class LoRARequest:
    """A field of requests; never given here."""

    name: str = ""


class PassThrough:
    """An ASGI middleware that does nothing."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Go on."""
        await self._app(scope, receive, send)


def _prompt_inputs(inputs: Any) -> dict[str, Any]:
    if isinstance(inputs, str):
        return {"prompt": inputs}
    return {"prompt_token_ids": inputs} if isinstance(inputs, list) else inputs


def _apply_chat_template(conversation: list[dict[str, Any]], **_: Any) -> str:
    """No template: the words of all messages."""
    return " ".join(message["content"] for message in conversation)


def _has_event_loop() -> bool:
    try:
        return asyncio.get_running_loop() is not None
    except RuntimeError:
        return False


def _decorator(*_: Any, **__: Any) -> Any:
    """A decorator with arguments that changes nothing."""
    return lambda decorated: decorated


class ServerRole(enum.Enum):
    """As llmapi/disagg_utils.py's, as far as the front end reads it."""

    MM_ENCODER = 2


_executor = SimpleNamespace(
    FinishReason=FinishReason,
    Response=Response,
    RequestPerfMetrics=type(None),
    LookaheadDecodingConfig=type(None),
    SamplingConfig=type(None),
    OutputConfig=type(None),
    GuidedDecodingParams=type(None),
)
# Names of each module; any other name, and any other module, is a class that does nothing.
STAND_INS: dict[str, dict[str, Any]] = {
    "": {},
    "version": {"__version__": "front end over a made-up engine"},
    "logger": {"logger": importlib.import_module("logging").getLogger(PACKAGE)},
    "_utils": {
        "nvtx_range_debug": _decorator,
        "nvtx_mark": lambda *_: None,
        "mpi_disabled": lambda: False,
        "set_prometheus_multiproc_dir": lambda: None,
    },
    "_torch.model_config": {"_CONFIG_REGISTRY": {}},
    "ray_stub": {"remote": _decorator},
    "bindings": {"executor": _executor},
    "disaggregated_params": {"DisaggregatedParams": DisaggregatedParams},
    "executor.utils": {
        "has_event_loop": _has_event_loop,
        "is_llm_response": lambda given: isinstance(given, Response),
    },
    "executor.request": {"LoRARequest": LoRARequest},
    "executor.postproc_worker": {
        "PostprocArgs": PostprocArgs,
        "PostprocParams": PostprocParams,
        "PostprocWorker": SimpleNamespace(Output=type("Output", (), {})),
    },
    "inputs": {
        "prompt_inputs": _prompt_inputs,
        "ConversationMessage": dict,
        "MultimodalDataTracker": MultimodalDataTracker,
    },
    "inputs.data": {"TokensPrompt": dict},
    "inputs.utils": {"ConversationMessage": dict, "apply_chat_template": _apply_chat_template},
    "llmapi": {"DisaggregatedParams": DisaggregatedParams},
    "llmapi.utils": {"AsyncQueue": AsyncQueue, "print_traceback_on_error": lambda function: function},
    "llmapi.tracer": {"global_tracer": lambda: SimpleNamespace(log_instant=lambda *_: None)},
    "llmapi.disagg_utils": {"ServerRole": ServerRole},
    "serve.metadata_server": {"create_metadata_server": lambda _: None},
    "serve.responses_utils": {
        "ServerArrivalTimeMiddleware": PassThrough,
        "get_steady_clock_now_in_seconds": time.monotonic,
    },
}
# Names that a package takes from its real modules.
_REAL_NAMES = {
    "executor": (
        "executor.result",
        ("GenerationResult", "GenerationResultBase", "DetokenizedGenerationResultBase"),
    ),
    "llmapi": ("sampling_params", ("SamplingParams", "GuidedDecodingParams")),
}


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports ``tensorrt_llm``: a real file where there is one, else what stands in for it."""

    def __init__(self, sources: Path) -> None:
        self._sources = sources

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        """As MetaPathFinder."""
        if name.partition(".")[0] != PACKAGE:
            return None
        file = self._sources / f"{name.replace('.', '/')}.py"
        if file.exists():
            loader = importlib.machinery.SourceFileLoader(name, str(file))
            return importlib.machinery.ModuleSpec(name, loader, origin=str(file))
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """As Loader."""
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """As Loader."""


class StandIn(types.ModuleType):
    """A module of STAND_INS."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        short = self.__name__.removeprefix(PACKAGE).lstrip(".")
        source, names = _REAL_NAMES.get(short, ("", ()))
        if name in names:
            return getattr(importlib.import_module(f"{PACKAGE}.{source}"), name)
        if f"{short}.{name}".lstrip(".") in STAND_INS:
            return importlib.import_module(f"{self.__name__}.{name}")
        if name not in STAND_INS.get(short, {}):
            setattr(self, name, type(name, (Exception if name.endswith("Error") else object,), {}))
            return self.__dict__[name]
        return STAND_INS[short][name]


async def _serve(vocabulary: Path, places: list[tuple[Path, int]]) -> None:
    """Each folder's model at its port."""
    module = importlib.import_module(f"{PACKAGE}.serve.openai_server")
    engines = [(Engine(folder, vocabulary), str(folder), port) for folder, port in places]
    servers = [
        module.OpenAIServer(engine, folder, None, None)("127.0.0.1", port) for engine, folder, port in engines
    ]
    await asyncio.gather(*servers)


def main() -> None:
    """Serve until a signal."""
    sources, vocabulary = map(Path, sys.argv[1:3])
    sys.meta_path.insert(0, Finder(sources))
    asyncio.run(
        _serve(
            vocabulary,
            [(Path(folder), int(port)) for folder, port in zip(sys.argv[3::2], sys.argv[4::2], strict=True)],
        )
    )


if __name__ == "__main__":
    main()
