"""The API in which a server is asked, and what its answers hold: settled by trial requests."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec import structs

from harness.config.generation import SamplingParameters
from harness.config.protocol import Api, Dialect, Protocol, own_protocol
from harness.config.run_options import Backend
from harness.dataset.samples import SampleSet
from harness.errors import ServerError
from harness.record.settled import ServerInfo
from sut.client.endpoint import Endpoint
from sut.servers.preflight import Preflight, Trial
from sut.wire import make_wire, supported
from sut.wire.fields import AnswersSeen

# For a refusal's remedy the other APIs are tried, on one server that has just answered.
_REMEDY_S = 60.0
_TEXT = b'"The quick brown fox jumps over the lazy dog."'
_MESSAGES = b'[{"role":"user","content":%b}]' % _TEXT
_ALIKE = "other replicas take it: start this one as they are, or do not name it"
# Servers whose pages do not show which of these they are: the dialect, and its --backend.
_UNNAMED: Mapping[Dialect, Backend] = {"openai": "vllm", "dynamo": "dynamo"}

EndpointsOf = Callable[[Sequence[str], str], list[Endpoint]]  # of these URLs, for requests with this path


def asked_by(servers: Sequence[ServerInfo], api: Api | None) -> tuple[ServerInfo, ...]:
    """The servers with the API by which they are asked; None: their own. Raises ServerError for another's."""
    return tuple(servers) if api is None else tuple(_asked_by(server, api) for server in servers)


def _asked_by(server: ServerInfo, api: Api) -> ServerInfo:
    ways = [one for one in supported(server.wire) if one.api == api]
    if not ways:
        known = ", ".join(dict.fromkeys(one.api for one in supported(server.wire)))
        raise ServerError(f"{server.url}: {server.engine} has no --api {api}; expected one of {known}")
    answers = "ids" if any(one.answers == "ids" for one in ways) else "text"
    name = server.served_name or server.model or ""
    return structs.replace(server, api=api, answers=answers, served_name=name)


class Tried(msgspec.Struct, frozen=True):
    """The trial requests of all replicas in one protocol."""

    protocol: Protocol
    endpoints: list[Endpoint]
    trials: list[Trial]
    seen: AnswersSeen
    """what the answers have shown"""


class TrialRequests(msgspec.Struct, frozen=True):
    """Trial requests of the run's servers, which settle what their answers hold."""

    servers: Sequence[ServerInfo]
    parameters: SamplingParameters
    vocabulary_size: int
    samples: SampleSet
    within_s: float
    to_the_end: bool
    """whether a replica that fails leaves the others to be tried"""
    endpoints_of: EndpointsOf

    def settled(self) -> Tried:
        """The trials in the protocol that was asked for, or in the same with text back where no ids come.

        That is so for all replicas or for none. The error of a replica names what it would take instead.
        """
        asked = self.servers[0].protocol
        with_text = dataclasses.replace(asked, answers="text")
        may_be_text = asked != with_text and with_text in supported(asked.dialect)
        tried = self._try(asked, refusals_end=not may_be_text)
        if may_be_text and _none_gives_ids(tried.trials):
            tried = self._try(with_text)
        return structs.replace(tried, trials=list(self._with_remedies(tried)))

    def _try(self, protocol: Protocol, *, refusals_end: bool = True) -> Tried:
        facts, endpoints = self._asked(self.servers, protocol)
        prompts = [(self.samples.prompt(0), int(self.samples.lengths[0]))]
        if protocol.api == "chat-ids":
            prompts.append(self._other_prompt())
        trial = Preflight(facts, self.parameters, self.vocabulary_size, self.within_s)
        for prompt, tokens in prompts:
            trials = trial.try_all(
                endpoints, prompt, tokens, to_the_end=self.to_the_end, refusals_end=refusals_end
            )
            if any(one.error for one in trials):
                break
        return Tried(protocol, endpoints, trials, trial.seen)

    def _other_prompt(self) -> tuple[bytes, int]:
        """A prompt of another length: a server that ignores the ids counts the same tokens for each."""
        ids: list[int] = self.samples.tokens(0).tolist()
        other = ids[: len(ids) // 2] or ids * 2
        return msgspec.json.encode(other), len(other)

    def _with_remedies(self, tried: Tried) -> Iterator[Trial]:
        """The trials; the first that was refused, with what that server would take."""
        looking = True
        took_it = any(one.seconds is not None and not one.error for one in tried.trials)
        for server, trial in zip(self.servers, tried.trials, strict=True):
            if looking and trial.refused:
                looking = False
                remedy = _ALIKE if took_it else self._remedy(server, tried.protocol)
                trial = structs.replace(trial, error=ServerError(f"{trial.error}; {remedy}"))
            yield trial

    def _remedy(self, server: ServerInfo, refused: Protocol) -> str:
        for others in _others(refused):
            if taken := self._taken(server, others):
                return "use " + ", or ".join(_spelled(one, refused) for one in taken)
        return "no other API gives an answer, either"

    def _taken(self, server: ServerInfo, protocols: Sequence[Protocol]) -> list[Protocol]:
        """Those that a server takes; of two that differ in what comes back, the first."""
        taken: dict[Api, Protocol] = {}
        for one in protocols:
            if one.api not in taken and self._takes(server, one):
                taken[one.api] = one
        return list(taken.values())

    def _takes(self, server: ServerInfo, protocol: Protocol) -> bool:
        """Whether an answer comes to small requests; the tokens of a text of ours are not known."""
        facts, endpoints = self._asked([server], protocol)
        prompts: list[tuple[bytes, int | None]] = [
            (_TEXT if protocol.api == "completions-text" else _MESSAGES, None)
        ]
        if not protocol.text_in:
            ids = self.samples.tokens(0).tolist()
            prompts = [(msgspec.json.encode(ids), len(ids)), self._other_prompt()]
        parameters = self._parameters_of(protocol)
        trial = Preflight(facts, parameters, self.vocabulary_size, min(self.within_s, _REMEDY_S))
        return all(trial.try_all(endpoints, *prompt)[0].error is None for prompt in prompts)

    def _parameters_of(self, protocol: Protocol) -> SamplingParameters:
        """Without the fields of messages where none are sent: SGLang's /generate refuses such names."""
        as_text = self.samples.as_text
        fields = as_text.fields if as_text is not None and protocol.api != "chat" else {}
        extra = {name: value for name, value in self.parameters.extra.items() if name not in fields}
        return structs.replace(self.parameters, extra=extra)

    def _asked(self, servers: Sequence[ServerInfo], protocol: Protocol) -> tuple[ServerInfo, list[Endpoint]]:
        """The first server as it is asked in a protocol, and the endpoints of all."""
        first = servers[0]
        facts = structs.replace(
            first,
            wire=protocol.dialect,
            api=protocol.api,
            answers=protocol.answers,
            served_name=first.served_name or first.model or "",
        )
        path = make_wire(protocol, self.parameters, self.vocabulary_size, "").path
        return facts, self.endpoints_of([server.url for server in servers], path)


def _none_gives_ids(trials: Sequence[Trial]) -> bool:
    """Whether every replica has failed, one at least with an answer, and none with an answer of ids."""
    failed = all(one.error and not one.gave_tokens for one in trials)
    return failed and any(one.refused for one in trials)


def _others(refused: Protocol) -> Iterator[list[Protocol]]:
    """What a server may take in place of a protocol, in groups of which the first is the best."""
    dialects = [refused.dialect, *(one for one in _UNNAMED if refused.dialect in _UNNAMED)]
    for text_in in (False, True):
        for dialect in dict.fromkeys(dialects):
            yield [
                one
                for one in supported(dialect)
                if one.text_in is text_in and (one.dialect, one.api) != (refused.dialect, refused.api)
            ]


def _spelled(protocol: Protocol, refused: Protocol) -> str:
    """``--api completions (ids in, ids out)``."""
    words = [] if protocol.dialect == refused.dialect else [f"--backend {_UNNAMED[protocol.dialect]}"]
    if not words or protocol.api != own_protocol(protocol.dialect).api:
        words.append(f"--api {protocol.api}")
    return f"{' '.join(words)} ({protocol.prompts} in, {protocol.answers} out)"
