"""Start options that a server reports and that make a run another one than the rules say."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import msgspec

from harness.config.benchmark import Benchmark
from harness.config.scenario import Scenario
from harness.record.server_changes import with_other_settings
from harness.record.settled import ACCEPTANCE, WATERMARKS, ServerInfo, parts_of, ranks_of
from sut.servers.info_pages import NOT_NAMED
from sut.servers.server_checks import grouped
from sut.wire.answer_checks import UNREADABLE

# What every request names itself.
_ALWAYS_ASKED = {"max_new_tokens", "temperature", "top_p", "top_k", "skip_special_tokens"}
# Values at which they do nothing.
_NEUTRAL: dict[str, object] = {
    "min_p": 0,
    "repetition_penalty": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "min_new_tokens": 0,
    "n": 1,
    "ignore_eos": False,
}
# By SGLang's and vLLM's name of the option: the value with which they keep a prefix cache, and the remedy.
_CACHES = (
    ("disable_radix_cache", False, "--disable-radix-cache"),
    ("enable_prefix_caching", True, "--no-enable-prefix-caching"),
)
_SHOWN = 120  # characters of a change


def setting_deviations(facts: Sequence[ServerInfo]) -> Iterator[str]:
    """Deviations: servers whose settings make the answers another model's, or drawn by other parameters."""

    def lossy(fact: ServerInfo) -> str | None:
        found = [f"{name} {value}" for name in ACCEPTANCE if (value := fact.settings.get(name, 1.0)) != 1.0]
        if not fact.settings.get("speculative_algorithm") or not found:
            return None
        return f" keeps drafted tokens that the model would not have drawn ({', '.join(found)}, expected 1)"

    def sampled_otherwise(fact: ServerInfo) -> str | None:
        try:
            preferred = _preferred(fact)
        except UNREADABLE:
            return " adds sampling parameters to each request that cannot be read, expected none"
        added = {name for name, value in preferred.items() if value not in (None, _NEUTRAL.get(name))}
        added -= _ALWAYS_ASKED
        if not added:
            return None
        return f" adds sampling parameters to each request ({', '.join(sorted(added))}), expected none"

    def marked(fact: ServerInfo) -> str | None:
        return " marks its answers (watermark)" if any(map(fact.settings.get, WATERMARKS)) else None

    for check in (lossy, sampled_otherwise, marked):
        yield from grouped(facts, check)


def _preferred(fact: ServerInfo) -> dict[str, Any]:
    """SGLang's --preferred-sampling-params, which count where a request has none of the name.

    Raises msgspec.DecodeError or another of UNREADABLE.
    """
    return msgspec.json.decode(
        str(fact.settings.get("preferred_sampling_params") or "{}"), type=dict[str, Any]
    )


def setting_warnings(facts: Sequence[ServerInfo]) -> Iterator[str]:
    """A warning about a server that changes the configuration of its model."""

    def changed(fact: ServerInfo) -> str | None:
        change = fact.settings.get("json_model_override_args", "{}")
        if change in ("", "{}"):
            return None
        shown = str(change)[:_SHOWN]
        return f" changes its model's configuration ({shown}), which must still compute what the rules' does"

    return grouped(facts, changed)


def unseen_option_warnings(facts: Sequence[ServerInfo]) -> Iterator[str]:
    """A warning about a server that does not show its options, or a router that does not pass them on."""

    def unseen(fact: ServerInfo) -> str | None:
        if fact.settings or fact.wire not in ("sglang", "openai"):
            return None
        unknown = "options, so that a prefix cache or drafted tokens against the rules are not found"
        if fact.router is None:
            page = "/server_info" if fact.wire == "sglang" else "/metrics (vLLM: omit --disable-log-stats)"
            return f": does not show its {unknown}: {page} has none of them"
        backend = "" if fact.wire == "sglang" else f"--backend {fact.wire} "
        return (
            f": {fact.router.name} does not show its servers' {unknown}; ask each server: ./mlperf doctor "
            f"{backend}--server-url SERVER"
        )

    return grouped(facts, unseen)


def queue_warnings(facts: Sequence[ServerInfo], in_flight: int, *, all_at_once: bool) -> Iterator[str]:
    """A warning about servers that may refuse requests of the run: their queues are bounded.

    With ``all_at_once`` the first requests are all queued before one runs.
    """
    urls = [fact.url for fact in facts]
    parts = dict(zip(urls, parts_of(facts, in_proportion=all_at_once), strict=True))

    def refusing(fact: ServerInfo) -> str | None:
        queued = fact.settings.get("max_queued_requests")
        if type(queued) is not int:
            return None
        limit = queued * ranks_of(fact)
        room = limit if all_at_once else limit + (fact.max_running_requests or 0)
        part = parts[fact.url]
        each = math.ceil(in_flight * part)
        if each <= room:
            return None
        return (
            f" refuses requests when {limit} are queued (--max-queued-requests), and up to {each} may be in "
            "flight at once: each that it refuses is a failed query. Start it without that flag, or set "
            f"--max-concurrency {math.floor(room / part)}"
        )

    return grouped(facts, refusing)


def closed_division_deviations(
    facts: Sequence[ServerInfo], benchmark: Benchmark, scenario: Scenario
) -> Iterator[str]:
    """Deviations: tokens drafted where or as the rules allow none, and a prefix cache."""
    rule = benchmark.speculative_decoding.get(scenario)

    def drafting(fact: ServerInfo) -> str | None:
        algorithm = fact.settings.get("speculative_algorithm")
        if not algorithm:
            return None
        if rule is None:
            return (
                f" drafts tokens ({algorithm}), which round {benchmark.round} allows {benchmark.name} in "
                f"{benchmark.drafting_scenarios}; start it without speculative decoding for {scenario}"
            )
        wrong = [
            f"{name} {value}, expected {expected}"
            for name, expected in (("num_steps", rule.num_steps), ("eagle_topk", rule.eagle_topk))
            if (value := fact.settings.get(f"speculative_{name}", expected)) != expected
        ]
        if algorithm not in (*rule.algorithms, NOT_NAMED):
            wrong.insert(0, f"{algorithm}, expected {rule.algorithms[0]}")
        return f" drafts tokens otherwise than the rules: {'; '.join(wrong)}" if wrong else None

    if benchmark.official:
        yield from grouped(facts, drafting)
    yield from cache_deviations(facts, benchmark)


def later_deviations(journal: Path, benchmark: Benchmark, scenario: Scenario) -> Iterator[str]:
    """The same of servers that named other start options when they were asked again in the run."""
    later = tuple(with_other_settings(journal))
    for text in closed_division_deviations(later, benchmark, scenario):
        yield f"asked again: {text}"


def cache_deviations(facts: Sequence[ServerInfo], benchmark: Benchmark) -> Iterator[str]:
    """Deviations: a prefix cache, in any scenario."""

    def caching(fact: ServerInfo) -> str | None:
        remedy = next((flag for name, value, flag in _CACHES if fact.settings.get(name) is value), None)
        if remedy is None:
            return None
        return (
            " keeps a KV cache across queries, which the closed division does not allow; start it with "
            f"{remedy}"
        )

    if benchmark.official:
        yield from grouped(facts, caching)


def draft_warnings(facts: Sequence[ServerInfo], benchmark: Benchmark, scenario: Scenario) -> Iterator[str]:
    """A warning about a draft model whose path does not name that of the rules."""
    rule = benchmark.speculative_decoding.get(scenario)
    if rule is None:
        return
    named = rule.draft_model or "the model's own head"

    def other(fact: ServerInfo) -> str | None:
        algorithm, path = map(fact.settings.get, ("speculative_algorithm", "speculative_draft_model_path"))
        expected = rule.draft_model or fact.model_path or ""
        is_it = PurePath(expected).name.lower() in str(path or expected).lower()
        if not algorithm or (algorithm != NOT_NAMED and is_it):
            return None
        return f" drafts with {path or 'a model that it does not name'}: it must be {named}, at its precision"

    yield from grouped(facts, other)
