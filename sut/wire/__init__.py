"""Wire protocols of inference servers, and the choice of one."""

from collections.abc import Mapping
from functools import partial

import msgspec

from harness.config.generation import SamplingParameters
from harness.config.protocol import Dialect, Protocol
from sut.wire.fields import AnswersSeen, EventJudge
from sut.wire.llamacpp import LLAMACPP
from sut.wire.openai import FORMS
from sut.wire.sglang import SGLANG
from sut.wire.wire import Form, Wire

_FORMS: Mapping[Protocol, Form] = {
    Protocol("sglang", "generate"): SGLANG,
    Protocol("llamacpp", "generate"): LLAMACPP,
    **FORMS,
}


def supported(dialect: Dialect) -> tuple[Protocol, ...]:
    """The protocols of a dialect, the best one first: ids in answers, then ids in requests."""
    return tuple(protocol for protocol in _FORMS if protocol.dialect == dialect)


def make_judge(protocol: Protocol, model: str, seen: AnswersSeen | None = None) -> EventJudge:
    """The judge of a protocol's events; without ``seen`` it learns."""
    return _FORMS[protocol].judge(model, seen)


def make_wire(
    protocol: Protocol,
    parameters: SamplingParameters,
    vocabulary_size: int,
    model: str,
    judge: EventJudge | None = None,
) -> Wire:
    """The protocol object; ``model`` is the served name that OpenAI requests must carry."""
    return Wire(_FORMS[protocol], parameters, vocabulary_size, model, judge or make_judge(protocol, model))


class Wires:
    """The protocol objects of a run: one for each limit of output tokens that its samples have."""

    def __init__(
        self,
        protocol: Protocol,
        parameters: SamplingParameters,
        vocabulary_size: int,
        model: str,
        seen: AnswersSeen | None = None,
    ) -> None:
        judge = make_judge(protocol, model, seen)
        self._parameters = parameters
        self._make = partial(make_wire, protocol, vocabulary_size=vocabulary_size, model=model, judge=judge)
        self._by_limit: dict[int, Wire] = {}

    def of(self, limit: int) -> Wire:
        """The protocol for answers of at most ``limit`` tokens; 0: as many as the run's parameters allow."""
        wire = self._by_limit.get(limit)
        if wire is None:
            parameters = self._parameters
            limited = msgspec.structs.replace(parameters, max_new_tokens=limit) if limit else parameters
            wire = self._by_limit[limit] = self._make(limited)
        return wire
