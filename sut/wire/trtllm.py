"""TensorRT-LLM's ``trtllm-serve``: ``POST /v1/completions`` with prompts of ids and ``"detokenize": false``.

From its public sources (``serve/openai_protocol.py``, ``serve/postprocess_handlers.py``); not tried on the
real server. It refuses fields that it does not know, ``return_token_ids`` among them. Without
detokenization each choice has its new ids in ``token_ids``; everything else is as in vLLM's answers.

Its answers have an id of their own, not the request's; versions without ``_ensure_stream_metadata`` give each
chunk another one.

The end token is among the ids with the default TorchSampler, which appends a token before it looks for
an end (``_torch/pyexecutor/sampler``). With ``sampler_type: TRTLLMSampler`` and with TensorRT engines the
tokenizer's end token is missing: their kernels do not count it. The other end tokens of
``generation_config.json`` are stop words for this server (``sampling_params.py``), kept only with
``include_stop_str_in_output``.
"""

from typing import Any

from harness.config.generation import SamplingParameters
from sut.wire.openai import OpenAIAnswer, OpenAIWire, completion_options


class TrtllmWire(OpenAIWire):
    """Renders requests for and reads answers of ``trtllm-serve``: vLLM's but for some options."""

    def answer(self) -> "TrtllmAnswer":
        """A reader for one new answer."""
        return TrtllmAnswer(self._limits, self._judge)

    @staticmethod
    def options(parameters: SamplingParameters) -> dict[str, Any]:
        """All of a request but prompt and model."""
        return completion_options(parameters) | {
            "top_k": max(parameters.top_k, 0),  # it refuses -1 and writes "off" as 0
            "include_stop_str_in_output": True,
            "detokenize": False,
            **parameters.extra,
        }


class TrtllmAnswer(OpenAIAnswer):
    """vLLM's, but its chunks may have different ids if those of the trial answers have."""

    __slots__ = ()
    _one_id = False
