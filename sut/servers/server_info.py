"""A server's facts about itself, and checks of the run against them."""

from collections.abc import Callable, Iterator, Sequence

from harness.config.benchmark import Benchmark
from harness.config.generation import SamplingParameters
from harness.config.server_urls import folded
from harness.errors import ServerError
from harness.record.resolved_plan import ServerInfo
from sut.servers.model_name import REVISION, Match, match_names

# SGLang passes on tokens of unstreamed answers in steps of 50, too: from there on streams cost it no more.
_CHEAP_STREAM_INTERVAL = 50


def _grouped(facts: Sequence[ServerInfo], text: Callable[[ServerInfo], str | None]) -> Iterator[str]:
    """Servers with ``text`` of them; those of the same text share a line."""
    urls: dict[str, list[str]] = {}
    for fact in facts:
        if (found := text(fact)) is not None:
            urls.setdefault(found, []).append(fact.url)
    for found, of_text in urls.items():
        yield f"{folded(of_text)}{found}"


def stream_warnings(facts: Sequence[ServerInfo]) -> Iterator[str]:
    """Warnings about streams of many events: in Offline they cost time and measure nothing."""
    found: dict[int, list[str]] = {}
    for fact in facts:
        if fact.stream_interval is not None and fact.stream_interval < _CHEAP_STREAM_INTERVAL:
            found.setdefault(fact.stream_interval, []).append(fact.url)
    for interval, urls in found.items():
        yield (
            f"answers are streamed in Offline, and {folded(urls)} has stream interval {interval}: each event "
            f"costs it CPU time; start it with --stream-interval {_CHEAP_STREAM_INTERVAL} or more, or do "
            "not stream"
        )


def model_deviations(facts: Sequence[ServerInfo], benchmark: Benchmark) -> Iterator[str]:
    """Deviations: servers of another model or revision than the rules, or --model, name."""
    wanted = f"the rules say {benchmark.model}" if benchmark.official else f"expected {benchmark.model}"

    def deviation(fact: ServerInfo) -> str | None:
        if fact.model is None:
            return f" does not name its model, {wanted}"
        if _match(fact, benchmark.model) is Match.OTHER:
            return f" serves {fact.names}, {wanted}"
        if fact.revision is not None and not _same_revision(fact.revision, benchmark.model_revision):
            return f" serves revision {fact.revision}, the rules say {benchmark.model_revision}"
        return None

    return _grouped(facts, deviation)


def model_warnings(facts: Sequence[ServerInfo], benchmark: Benchmark) -> Iterator[str]:
    """Warnings about a quantised or converted form of the rules' model, or a model known only by name."""

    def known_by_name(fact: ServerInfo) -> str | None:
        path = fact.model_path
        if _match(fact, benchmark.model) is Match.OTHER or not path:
            return None
        if match_names([path], benchmark.model) is not Match.OTHER:
            return None
        return (
            f" serves {fact.names}: the path does not name {benchmark.model}, "
            "so only the served name identifies the model"
        )

    def variant(fact: ServerInfo) -> str | None:
        if _match(fact, benchmark.model) is not Match.VARIANT:
            return None
        found = f" serves {fact.names}, a quantised or converted form of {benchmark.model}"
        must = ": measurements.json must say so (weight_transformations, weight_data_types)"
        return found + must if benchmark.official else found

    yield from _grouped(facts, known_by_name)
    yield from _grouped(facts, variant)


def _match(fact: ServerInfo, wanted: str) -> Match:
    return match_names([name for name in (fact.model_path, fact.model, fact.served_name) if name], wanted)


def _same_revision(revision: str, wanted: str | None) -> bool:
    """False where they differ. Branches and tags (``main``) are no revision; an abbreviated hash is."""
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

    return _grouped(facts, missing)


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
