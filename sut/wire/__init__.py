"""Wire protocols of inference servers, and the choice of one by its name."""

import msgspec

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


class Wires:
    """The protocol objects of a run: one for each limit of output tokens that its samples have."""

    def __init__(self, name: str, parameters: SamplingParameters, vocabulary_size: int, model: str) -> None:
        self._made = name, vocabulary_size, model
        self._parameters = parameters
        self._by_limit: dict[int, Wire] = {0: make_wire(name, parameters, vocabulary_size, model)}

    def of(self, limit: int) -> Wire:
        """The protocol for answers of at most ``limit`` tokens; 0: as many as the run's parameters allow."""
        wire = self._by_limit.get(limit)
        if wire is None:
            name, vocabulary_size, model = self._made
            limited = msgspec.structs.replace(self._parameters, max_new_tokens=limit)
            wire = self._by_limit[limit] = make_wire(name, limited, vocabulary_size, model)
        return wire


def max_event_bytes(parameters: SamplingParameters, vocabulary_size: int) -> int:
    """The largest event that an honest answer can hold."""
    return AnswerBounds(parameters.max_new_tokens, vocabulary_size).max_event_bytes
