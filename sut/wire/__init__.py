"""Wire protocols of inference servers, and the choice of one by its name."""

from collections.abc import Mapping
from functools import partial

import msgspec

from harness.config.generation import SamplingParameters
from sut.wire.fields import AnswersSeen, EventJudge
from sut.wire.llamacpp import LlamaCppWire
from sut.wire.openai import OpenAIWire, TrtllmWire
from sut.wire.sglang import SglangWire
from sut.wire.wire import Wire

_WIRES: Mapping[str, type[Wire]] = {
    "sglang": SglangWire,
    "llamacpp": LlamaCppWire,
    "trtllm": TrtllmWire,
    "openai": OpenAIWire,
}


def make_judge(name: str, model: str, seen: AnswersSeen | None = None) -> EventJudge:
    """The judge of a protocol's events; without ``seen`` it learns."""
    return _WIRES[name].judge(model, seen)


def make_wire(
    name: str,
    parameters: SamplingParameters,
    vocabulary_size: int,
    model: str,
    judge: EventJudge | None = None,
) -> Wire:
    """The protocol object; ``model`` is the served name that OpenAI requests must carry."""
    return _WIRES[name](parameters, vocabulary_size, model, judge or make_judge(name, model))


class Wires:
    """The protocol objects of a run: one for each limit of output tokens that its samples have."""

    def __init__(
        self,
        name: str,
        parameters: SamplingParameters,
        vocabulary_size: int,
        model: str,
        seen: AnswersSeen | None = None,
    ) -> None:
        judge = make_judge(name, model, seen)
        self._parameters = parameters
        self._make = partial(make_wire, name, vocabulary_size=vocabulary_size, model=model, judge=judge)
        self._by_limit: dict[int, Wire] = {}

    def of(self, limit: int) -> Wire:
        """The protocol for answers of at most ``limit`` tokens; 0: as many as the run's parameters allow."""
        wire = self._by_limit.get(limit)
        if wire is None:
            parameters = self._parameters
            limited = msgspec.structs.replace(parameters, max_new_tokens=limit) if limit else parameters
            wire = self._by_limit[limit] = self._make(limited)
        return wire
