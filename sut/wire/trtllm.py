"""TensorRT-LLM's ``trtllm-serve``: ``POST /v1/completions`` with prompts of ids and ``"detokenize": false``.

From its public sources (``serve/openai_protocol.py``, ``serve/postprocess_handlers.py``); not tried on the
real server. It refuses fields that it does not know, ``return_token_ids`` among them. Without
detokenization each choice has its new ids in ``token_ids``; everything else is as in vLLM's answers.

The end token is among the ids with the default TorchSampler, which appends a token before it looks for
an end (``_torch/pyexecutor/sampler``). With ``sampler_type: TRTLLMSampler`` and with TensorRT engines the
tokenizer's end token is missing: their kernels do not count it. The other end tokens of
``generation_config.json`` are stop words for this server (``sampling_params.py``), kept only with
``include_stop_str_in_output``.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from harness.config.generation import SamplingParameters
from sut.wire.base import AnswerBounds, given
from sut.wire.openai import OpenAIAnswer


class TrtllmWire:
    """Renders requests for and reads answers of ``trtllm-serve``."""

    path = "/v1/completions"

    def __init__(self, parameters: SamplingParameters, vocabulary_size: int, model: str) -> None:
        self.streams = parameters.stream
        self._limits = AnswerBounds(parameters.max_new_tokens, vocabulary_size)
        options = {"model": model} | _options(parameters)
        self._tail = b"," + msgspec.json.encode(options)[1:]

    def render(self, token_ids: Sequence[int]) -> bytes:
        """``{"prompt":[...],"model":...,"max_tokens":...,"detokenize":false,...}``."""
        return b'{"prompt":' + msgspec.json.encode(token_ids) + self._tail

    def answer(self) -> OpenAIAnswer:
        """A reader for one new answer."""
        return OpenAIAnswer(self._limits)


def _options(parameters: SamplingParameters) -> dict[str, Any]:
    options: dict[str, Any] = {
        "max_tokens": parameters.max_new_tokens,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "top_k": max(parameters.top_k, 0),  # it refuses -1 and writes "off" as 0
        "skip_special_tokens": parameters.skip_special_tokens,
        "include_stop_str_in_output": True,
        "detokenize": False,
        "stream": parameters.stream,
        **given(min_tokens=parameters.min_new_tokens, seed=parameters.seed),
    }
    if parameters.stream:
        options["stream_options"] = {"include_usage": True}
    return options | parameters.extra
