"""What a server reports about itself, and whether the run fits it."""

import re
from collections.abc import Iterator, Sequence

from harness.config.benchmark import Benchmark
from harness.config.generation import SamplingParameters
from harness.config.model_name import Match, match_names
from harness.errors import ServerError
from harness.record.resolved_plan import ServerInfo

# SGLang passes on tokens of unstreamed answers in steps of 50, too: from there on streams cost it no more.
_CHEAP_STREAM_INTERVAL = 50
_MAY_DIFFER = (
    "model_path",
    "revision",
    "context_length",
    "dp_size",
    "max_running_requests",
    "stream_interval",
)


def check_alike(facts: Sequence[ServerInfo]) -> None:
    """Raise ServerError unless all replicas serve the same model with the same version."""
    first = facts[0]
    for other in facts[1:]:
        if (other.wire, other.model, other.version) != (first.wire, first.model, first.version):
            raise ServerError(
                f"replicas differ: {first.url} serves {_name(first)} ({first.engine} {first.version}), "
                f"{other.url} {_name(other)} ({other.engine} {other.version}); one run needs equal replicas"
            )


def _name(fact: ServerInfo) -> str:
    return fact.model or "a model without a name"


def replica_warnings(facts: Sequence[ServerInfo]) -> Iterator[str]:
    """Warnings about settings in which replicas of the same model and version differ."""
    for name in _MAY_DIFFER:
        found = {fact.url: getattr(fact, name) for fact in facts}
        if len(set(found.values())) > 1:
            shown = ", ".join(f"{value} at {url}" for url, value in found.items())
            yield f"replicas differ in {name.replace('_', ' ')}: {shown}"


def stream_warnings(facts: Sequence[ServerInfo]) -> Iterator[str]:
    """Warnings about streams of many events: in Offline they cost time and measure nothing."""
    for fact in facts:
        if fact.stream_interval is not None and fact.stream_interval < _CHEAP_STREAM_INTERVAL:
            yield (
                f"Offline streams, and {fact.url} has stream interval {fact.stream_interval}: each event "
                f"costs it CPU time; start it with --stream-interval {_CHEAP_STREAM_INTERVAL} or more, or do "
                "not stream"
            )


def model_deviations(facts: Sequence[ServerInfo], benchmark: Benchmark) -> Iterator[str]:
    """Deviations: servers of another model or revision than the rules name."""
    wanted = benchmark.model
    for fact in facts:
        if fact.model is None:
            yield f"{fact.url} does not name its model, the rules say {wanted}"
        elif _match(fact, wanted) is Match.OTHER:
            yield f"{fact.url} serves {fact.names}, the rules say {wanted}"
        elif fact.revision is not None and not _same_revision(fact.revision, benchmark.model_revision):
            yield f"{fact.url} serves revision {fact.revision}, the rules say {benchmark.model_revision}"


def model_warnings(facts: Sequence[ServerInfo], benchmark: Benchmark) -> Iterator[str]:
    """Warnings about a quantised or converted form of the rules' model, or a model known only by name."""
    for fact in facts:
        match = _match(fact, benchmark.model)
        path = fact.model_path
        if match is not Match.OTHER and path and match_names([path], benchmark.model) is Match.OTHER:
            yield (
                f"{fact.url} serves {fact.names}: the path does not name {benchmark.model}, "
                "so only the served name stands for the model"
            )
        if match is Match.VARIANT:
            yield (
                f"{fact.url} serves {fact.names}, a quantised or converted form of {benchmark.model}: "
                "measurements.json must say so (weight_transformations, weight_data_types)"
            )


def _match(fact: ServerInfo, wanted: str) -> Match:
    return match_names([name for name in (fact.model_path, fact.model, fact.served_name) if name], wanted)


def _same_revision(revision: str, wanted: str | None) -> bool:
    """False where they differ. Branches and tags (``main``) are no revision; an abbreviated hash is."""
    return wanted is None or not re.fullmatch("[0-9a-f]{7,40}", revision) or wanted.startswith(revision)


def parameter_warnings(facts: Sequence[ServerInfo], parameters: SamplingParameters) -> Iterator[str]:
    """Warnings about parameters that a server's protocol does not have."""
    for fact in facts:
        if parameters.min_new_tokens and fact.wire == "llamacpp":
            yield (
                f"{fact.url}: {fact.engine} takes no min_new_tokens, here {parameters.min_new_tokens}: "
                "shorter answers are not prevented, and one without a token is a failure"
            )


def check_capacity(
    facts: Sequence[ServerInfo],
    longest_prompt: int,
    max_new_tokens: int,
    vocabulary: int,
    needed: int | None = None,
) -> None:
    """Check prompts and answers against the context, and ids against the vocabulary. Raises ServerError.

    ``needed``: the most tokens of a prompt and its answer, where that is not the sum of the two.
    """
    needed = needed or longest_prompt + max_new_tokens
    for fact in facts:
        if fact.context_length is not None and fact.context_length < needed:
            raise ServerError(
                f"{fact.url}: context of {fact.context_length} tokens, expected {needed} (longest prompt "
                f"{longest_prompt} + max_new_tokens {max_new_tokens}); raise the server's context length"
            )
        if fact.vocabulary_size is not None and fact.vocabulary_size < vocabulary:
            raise ServerError(
                f"{fact.url}: model with {fact.vocabulary_size} token ids, the dataset needs {vocabulary}; "
                "serve the model that the dataset was tokenized for"
            )
