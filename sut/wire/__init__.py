"""Wire protocols of inference servers, and the choice of one by its name."""

from harness.config.generation import SamplingParameters
from sut.wire.base import AnswerBounds, Wire
from sut.wire.llamacpp import LlamaCppWire
from sut.wire.openai import OpenAIWire
from sut.wire.sglang import SglangWire
from sut.wire.trtllm import TrtllmWire


def make_wire(name: str, parameters: SamplingParameters, vocabulary_size: int, model: str) -> Wire:
    """The protocol object; ``model`` is the served name that OpenAI requests must carry."""
    if name == "sglang":
        return SglangWire(parameters, vocabulary_size)
    if name == "llamacpp":
        return LlamaCppWire(parameters, vocabulary_size)
    if name == "trtllm":
        return TrtllmWire(parameters, vocabulary_size, model)
    return OpenAIWire(parameters, vocabulary_size, model)


def max_event_bytes(parameters: SamplingParameters, vocabulary_size: int) -> int:
    """The largest event that an honest answer can hold."""
    return AnswerBounds(parameters.max_new_tokens, vocabulary_size).max_event_bytes
