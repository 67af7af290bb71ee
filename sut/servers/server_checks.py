"""Checks of the servers' facts: against the run, against the rules' model, and against each other."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec

from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.choices import available_benchmarks, available_models
from harness.config.generation import SamplingParameters
from harness.config.rounds import read_toml
from harness.config.server_urls import folded
from harness.errors import ServerError
from harness.grouping import by_key
from harness.record.server_changes import HASH
from harness.record.settled import ServerInfo
from sut.servers.info_pages import DYNAMO, LITELLM, SGLANG_ROUTER, SMG, VLLM_ROUTER, SettingValues
from sut.servers.model_names import NAMED_REVISION, REVISION, Match, match_names

# SGLang also passes on the tokens of unstreamed answers in steps of 50: with this interval, or a longer one,
# streams cost it no more.
_CHEAP_STREAM_INTERVAL = 50

# Fields that differ by nature or with time, and those that may hold a secret, such as the start command.
# The names are those of SGLang 0.5.23.
_OWN = re.compile(
    r"(.*_)?(url|host|ip|ports?|addr|seed|gpu_id|worker_id|ipc_name|throughput|(start|up)?time)|node_rank|"
    r".*(key|secret|password|credential|command).*|(hf|auth|access)_token"
)
_NOT_COMPARED = ("url", "listener", "trial_s", "settings", "differs")
_MOST_VALUES = 4
# Fields that all replicas that name them have in common, as they have protocol, engine and model.
_ALIKE = ("revision", "weight_version", "vocabulary_size", "context_length")
_REMEDY = "one run needs equal replicas: start those that differ like the others, or do not name them"

_PAGE = "docs/guide/servers/router.md"
_RISK = "and may hide failures by retrying"
_GATEWAY = "and, without --disable-retries, failures; its policy is not known"
_RISKS = {
    **dict.fromkeys((SMG, SGLANG_ROUTER, VLLM_ROUTER), _GATEWAY),
    DYNAMO: "and, with --migration-limit, failures",
    LITELLM: "and answers that their server aborted or cut off, which it ends as complete ones (an answer "
    "after a retry or from its cache is a failure here)",
    "nginx": "and, without proxy_next_upstream off, failures, may hold back streams unless it has "
    "proxy_buffering off, and ends an answer that is silent for its proxy_read_timeout (60 s unless set)",
    "HAProxy": "and, with retries, failures, delays the tokens of streams by 200 ms unless it has "
    "option http-no-delay, and ends an answer that is silent for its timeout server",
    "Envoy": "and, with retries, failures, and ends an answer by its route's timeout (15 s unless set), and "
    "one that is silent by its idle_timeout (5 min unless set)",
}

_Key = TypeVar("_Key")


# -- the run against its servers


def _urls_by(facts: Sequence[ServerInfo], key: Callable[[ServerInfo], _Key | None]) -> dict[_Key, list[str]]:
    """The servers of each key, in the order of the keys; those without a key are left out."""
    return by_key((found, fact.url) for fact in facts if (found := key(fact)) is not None)


def grouped(facts: Sequence[ServerInfo], text: Callable[[ServerInfo], str | None]) -> Iterator[str]:
    """Servers with ``text`` of them; those of the same text share a line, None has none."""
    for found, urls in _urls_by(facts, text).items():
        yield f"{folded(urls)}{found}"


def stream_warnings(facts: Sequence[ServerInfo]) -> Iterator[str]:
    """Warnings about streams of many events where all requests are sent at once: they measure nothing."""

    def short_interval(fact: ServerInfo) -> int | None:
        interval = fact.stream_interval
        return interval if interval is not None and interval < _CHEAP_STREAM_INTERVAL else None

    for interval, urls in _urls_by(facts, short_interval).items():
        yield (
            f"answers are streamed and no times are judged, and {folded(urls)} has stream interval "
            f"{interval}: each event costs it CPU time; start it with --stream-interval "
            f"{_CHEAP_STREAM_INTERVAL} or more, or do not stream"
        )


def model_deviations(facts: Sequence[ServerInfo], benchmark: Benchmark) -> Iterator[str]:
    """Deviations: servers of another model or revision than the rules, or --model, name."""
    wanted = f"the rules say {benchmark.model}" if benchmark.official else f"expected {benchmark.model}"

    def deviation(fact: ServerInfo) -> str | None:
        if fact.has_dummy_weights:
            return f" has random weights ({fact.names}): its answers mean nothing, {wanted}"
        if fact.model is None:
            return f" does not name its model, {wanted}"
        match, revision = _match_of(fact, benchmark.model), _revision(fact)
        if match is Match.OTHER:
            return f" serves {fact.names}, {wanted}{_meant(fact, benchmark)}"
        if other := _loaded_instead(fact, benchmark.model):
            return f" serves {fact.names}: the path is of {other}, {wanted}"
        # The revisions of another form are those of its own repository.
        if match is Match.SAME and revision and not _same_revision(revision, benchmark.model_revision):
            return f" serves revision {revision}, the rules say {benchmark.model_revision}"
        least = benchmark.least_weights_gb
        if least is not None and fact.weights_gb is not None and fact.weights_gb < least:
            return (
                f" serves {fact.names} with weights of {fact.weights_gb:g} GB, which are not those of "
                f"{benchmark.model} (at least {least:g} GB)"
            )
        return None

    return grouped(facts, deviation)


def _loaded_instead(fact: ServerInfo, wanted: str) -> str:
    """Another model that configs/ knows and the path names, whatever the server calls it; "" for none."""
    path = fact.model_path
    others = _known_models() - {wanted} if path else ()
    return next((model for model in others if match_names([path or ""], model) is not Match.OTHER), "")


@cache
def _known_models() -> frozenset[str]:
    files = (*available_benchmarks().values(), *available_models().values())
    return frozenset(read_toml(file)["model"] for file in files)


def _meant(fact: ServerInfo, benchmark: Benchmark) -> str:
    """The flag of the benchmark whose model a server has, where the rules are another's."""
    if not benchmark.official:
        return ""
    others = [load_benchmark(name, benchmark.round) for name in available_benchmarks()]
    found = [one.name for one in others if _match_of(fact, one.model) is not Match.OTHER]
    return f"; that model's benchmark is --benchmark {' or '.join(found)}" if found else ""


def model_warnings(facts: Sequence[ServerInfo], benchmark: Benchmark) -> Iterator[str]:
    """Warnings about a quantised or converted form of the rules' model, or a model known by name only."""

    def known_by_name(fact: ServerInfo) -> str | None:
        path = fact.model_path
        if _match_of(fact, benchmark.model) is Match.OTHER or not path:
            return None
        if match_names([path], benchmark.model) is not Match.OTHER or _loaded_instead(fact, benchmark.model):
            return None
        return (
            f" serves {fact.names}: the path does not name {benchmark.model}, "
            "so only the served name identifies the model"
        )

    def variant(fact: ServerInfo) -> str | None:
        if _match_of(fact, benchmark.model) is not Match.VARIANT:
            return None
        found = f" serves {fact.names}, a quantised or converted form of {benchmark.model}"
        must = ": measurements.json must say so (weight_transformations, weight_data_types)"
        return found + must if benchmark.official else found

    yield from grouped(facts, known_by_name)
    yield from grouped(facts, variant)


def _match_of(fact: ServerInfo, wanted: str) -> Match:
    return match_names([name for name in (fact.model_path, fact.model, fact.served_name) if name], wanted)


def _revision(fact: ServerInfo) -> str | None:
    """The revision that a server reports, else the one at the end of its folder's name."""
    named = NAMED_REVISION.search((fact.model_path or fact.model or "").rstrip("/"))
    return fact.revision or (named and named[0][1:])


def _same_revision(revision: str, wanted: str | None) -> bool:
    """False if they differ. Branches and tags (``main``) are not compared; an abbreviated hash is."""
    return wanted is None or not REVISION.fullmatch(revision) or wanted.startswith(revision)


def parameter_warnings(facts: Sequence[ServerInfo], parameters: SamplingParameters) -> Iterator[str]:
    """Warnings about parameters that a server's protocol does not have."""

    def missing(fact: ServerInfo) -> str | None:
        if not parameters.min_new_tokens or fact.wire != "llamacpp":
            return None
        return (
            f": {fact.engine} takes no min_new_tokens, here {parameters.min_new_tokens}: "
            "shorter answers are not prevented, and one without a token is a failure"
        )

    return grouped(facts, missing)


def check_capacity(facts: Sequence[ServerInfo], needed: int, vocabulary: int, benchmark: Benchmark) -> None:
    """Check the most tokens of a prompt with its answer, and ids, against each server. Raises ServerError."""
    for fact in facts:
        if fact.context_length is not None and fact.context_length < needed:
            remedy = _remedy(fact, benchmark, "raise the server's context length")
            raise ServerError(
                f"{fact.url}: context of {fact.context_length} tokens, expected {needed} for a prompt with "
                f"its answer; {remedy}"
            )
        if fact.vocabulary_size is not None and fact.vocabulary_size < vocabulary:
            remedy = _remedy(fact, benchmark, "serve the model that the dataset was tokenized for")
            raise ServerError(
                f"{fact.url}: model with {fact.vocabulary_size} token ids, the dataset needs {vocabulary}; "
                f"{remedy}"
            )


def _remedy(fact: ServerInfo, benchmark: Benchmark, own: str) -> str:
    """The benchmark that a server of another's model is for, else ``own``."""
    is_other = _match_of(fact, benchmark.model) is Match.OTHER
    meant = _meant(fact, benchmark) if is_other else ""
    return f"it serves {fact.names}{meant}" if meant else own


def router_warnings(servers: Sequence[ServerInfo]) -> Iterator[str]:
    """A warning for each kind of router: what it decides in place of this client, and what it may hide."""

    def router_name(server: ServerInfo) -> str | None:
        return None if server.router is None else server.router.name

    choice = "is off" if len(servers) == 1 else f"is between these {len(servers)} URLs only"
    for name, found in _urls_by(servers, router_name).items():
        yield (
            f"{folded(found)}: {name} in front, which places each query (this client's least-busy choice "
            f"{choice}) and hides stragglers {_RISKS.get(name, _RISK)}; name the servers themselves, or see "
            f"{_PAGE}"
        )
    for server in servers:
        yield from failed_behind(server)


def failed_behind(server: ServerInfo) -> Iterator[str]:
    """A warning where a router says that servers behind it are out."""
    router = server.router
    if router is not None and router.failed:
        yield (
            f"{server.url}: {router.name} reports {router.failed} of its {router.servers} servers as not "
            "healthy: the others do all the work; start what is missing, or measure without it"
        )


# -- differences between the replicas


def check_alike(facts: Sequence[ServerInfo]) -> None:
    """Raise ServerError unless all replicas serve the same model by the same engine with the same context."""
    groups = by_key(((fact.wire, fact.engine, fact.model), fact) for fact in facts)
    if len(groups) > 1:
        # The most frequent first, in the order of the URLs among equals.
        found = sorted(groups.values(), key=lambda group: -len(group))
        shown = ", ".join(
            f"{folded(fact.url for fact in group)} {'serves ' if place == 0 else ''}"
            f"{group[0].model or 'a model without a name'} "
            f"({group[0].engine} {group[0].version or 'without a version'})"
            for place, group in enumerate(found)
        )
        raise ServerError(f"replicas differ: {shown}; {_REMEDY}")
    for name in _ALIKE:
        named = [(fact, value) for fact in facts if (value := _compared(fact, name)) is not None]
        for text in _difference(name, [fact for fact, _ in named], [value for _, value in named]):
            raise ServerError(f"{text}; {_REMEDY}")


def _compared(fact: ServerInfo, name: str) -> Any:
    """A field's value if it can be compared: a branch or a part of a hash may name any revision."""
    value = getattr(fact, name)
    return None if name == "revision" and value is not None and not HASH.fullmatch(value) else value


def with_differences(answers: Sequence[tuple[ServerInfo, SettingValues]]) -> tuple[ServerInfo, ...]:
    """The servers, each with its values of /server_info that are not the same at all replicas."""
    facts = tuple(fact for fact, _ in answers)
    reports = [reported for _, reported in answers]
    names = dict.fromkeys(name for reported in reports for name in reported)
    settings = {name for fact in facts for name in fact.settings}
    differing = []
    for name in names:
        values = [reported.get(name) for reported in reports]
        if name in settings or _OWN.fullmatch(name) or hasattr(facts[0], name):
            continue
        distinct = len(set(values))
        is_identity = distinct == len(values) > 2 and any(isinstance(value, str) for value in values)
        if distinct > 1 and not is_identity:
            differing.append(name)
    return tuple(
        msgspec.structs.replace(
            fact, differs={name: reported[name] for name in differing if name in reported}
        )
        for fact, reported in zip(facts, reports, strict=True)
    )


def replica_warnings(facts: Sequence[ServerInfo]) -> Iterator[str]:
    """A warning for each field in which replicas of the same model differ."""
    fields = [name for name in ServerInfo.__struct_fields__ if name not in _NOT_COMPARED]
    for name in fields:
        yield from _difference(name, facts, [getattr(fact, name) for fact in facts])
    for part in ("settings", "differs"):
        found: list[dict[str, Any]] = [getattr(fact, part) for fact in facts]
        for name in dict.fromkeys(name for values in found for name in values):
            if name not in fields:
                yield from _difference(name, facts, [values.get(name) for values in found])


def _difference(name: str, facts: Sequence[ServerInfo], values: Sequence[Any]) -> Iterator[str]:
    counts = Counter(values)
    if len(counts) <= 1:
        return
    urls = by_key(zip(values, (fact.url for fact in facts), strict=True))
    shown = [f"{value} at {folded(urls[value])}" for value, _ in counts.most_common(_MOST_VALUES)]
    more = len(counts) - len(shown)
    if more and all(type(value) in (int, float) for value in counts):
        low, high = min(counts), max(counts)
        text = f"{len(counts)} values from {low} at {folded(urls[low])} to {high} at {folded(urls[high])}"
    else:
        text = ", ".join(shown) + (f" and {more} other values" if more else "")
    yield f"replicas differ in {name.replace('_', ' ')}: {text}"
