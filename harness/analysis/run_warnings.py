"""Reasons to distrust the figures of a run, a sentence each."""

from collections.abc import Iterator, Mapping

import numpy as np

from harness.analysis.answer_lengths import Lengths, length_warnings
from harness.analysis.client_overhead import lag_warnings, load_warnings, share_warnings
from harness.analysis.encoded_answers import text_warnings
from harness.analysis.equal_lengths import equally_long
from harness.analysis.network_summary import clump_text, held_back_warnings
from harness.analysis.outages import rank_warnings, silence_warnings
from harness.analysis.replicas import end_warnings, straggler_warnings
from harness.analysis.server_load import cache_warnings
from harness.config.generation import SamplingParameters
from harness.config.plans import RunPlan
from harness.config.scenario import Scenario
from harness.record.journal import FINISH_REASONS, Rows
from harness.record.run_record import ReplicaNetwork, RunRecord, Statistics
from harness.text import counted

# A query has about a hundred segments; a loss of fewer than one in a thousand does not reach a p99.
_LOST_FROM = 0.001
# Of real runs without another client, SGLang's, vLLM's and llama.cpp's counts had at most one token more.
_FOREIGN_FROM, _FOREIGN_TOKENS = 0.01, 100
_NAMED = 3  # servers that a warning names
_SAME = "have exactly as many tokens as the answer before"


def run_warnings(record: RunRecord, rows: Rows) -> Iterator[str]:
    """The warnings of a run with the figures of ``record``."""
    limit_ns = record.judged_limits_ns.get("TTFT")
    if record.statistics is not None:
        yield from _repeat_warnings(record.statistics)
        if record.limits_ns and not record.plan.accuracy:
            yield from _stream_warnings(rows, record.statistics)
    if not record.plan.accuracy:
        yield from held_back_warnings(record)
    yield from same_answer_warnings(record.plan.client.parameters, rows)
    yield from text_warnings(record.encoded)
    suspended = any(event.kind == "suspended" for event in record.events)
    yield from share_warnings(record.client_share, limit_ns, record.client_load, suspended=suspended)
    if record.balance is not None:
        yield from straggler_warnings(record.balance.stragglers or (), len(record.balance.replicas))
        if not record.plan.accuracy:
            urls = tuple(record.balance.replicas)
            yield from length_warnings(Lengths.of(rows, len(urls)), urls)
            yield from end_warnings(rows, urls) if record.plan.scenario is Scenario.OFFLINE else ()
    if record.client_load is not None:
        yield from load_warnings(record.client_load)
    if not any(event.kind == "clock_set" for event in record.events):  # the lag is by that clock
        yield from lag_warnings(record.schedule_lag_mean_ns, limit_ns, suspended=suspended)
    yield from rank_warnings(record.events, record.verdict.reasons if record.verdict is not None else ())
    yield from silence_warnings(record.events)
    yield from network_warnings(record.network)
    yield from _other_clients(record)
    yield from rule_warnings(record)
    if text := length_warning(record):
        yield text


def _other_clients(record: RunRecord) -> Iterator[str]:
    """A warning where the servers made more tokens than this run has in its answers.

    Not where a request had no answer, whose tokens the servers count, or a router's page may be of several.
    """
    stats, load = record.statistics, record.server_load
    if stats is None or load is None or stats.failed or stats.retries or record.unanswered or record.encoded:
        return
    more = load.counts.get("output_tokens", 0.0) - stats.output_tokens
    if more < max(_FOREIGN_TOKENS, _FOREIGN_FROM * stats.output_tokens):
        return
    if all(server.router is None for server in record.servers):
        yield (
            f"the servers made {more:,.0f} output tokens more than the {stats.output_tokens:,} of this run's "
            "answers: another client asked them meanwhile and slowed the run, or a proxy that does not show "
            "itself repeats requests or has several servers; let nothing else ask them, name the servers "
            "themselves, and measure again"
        )


def same_answer_warnings(parameters: SamplingParameters, rows: Rows) -> Iterator[str]:
    """A warning where a sample's answers, which are drawn at random, are as long each time it is asked.

    Answers that the limit of tokens ended say nothing.
    """
    if not parameters.temperature or parameters.seed is not None:
        return
    ended = rows[rows["finish"] == FINISH_REASONS.index("stop")]
    ended = ended[np.argsort(ended["issued_ns"], kind="stable")]
    if found := equally_long(ended["sample_index"], ended["osl"]):
        same, again = found
        yield (
            f"{same:,} of {again:,} answers to samples that were asked again {_SAME}: the "
            f"servers, or a proxy before them, answer from a cache, or do not sample at temperature "
            f"{parameters.temperature:g} as asked; let each request be answered for itself, and measure again"
        )


def names_same_answers(warning: str) -> bool:
    """Whether a warning of a run is that of ``same_answer_warnings``, which needs its rows."""
    return _SAME in warning


def rule_warnings(record: RunRecord) -> Iterator[str]:
    """What the servers' counts of the run say against the rules of the closed division."""
    if record.server_load is not None:
        yield from cache_warnings(record.server_load)
        yield from _drafting_warnings(record, record.server_load.counts.get("draft_tokens", 0.0))


def mean_length_bounds(plan: RunPlan) -> tuple[float, float] | None:
    """TEST09's bounds of the mean, in tokens, for runs with its prompts.

    Accuracy runs and TEST07 have others, and longer answers.
    """
    rule = plan.client.benchmark.length_rule
    if rule is None or plan.accuracy or (plan.audit is not None and plan.audit.test != "TEST09"):
        return None
    mean, share = rule.reference_mean_output_tokens, rule.tolerance
    return mean * (1 - share), mean * (1 + share)


def length_warning(record: RunRecord) -> str:
    """That TEST09 and the check of a submission will refuse the answers of this performance run, or "".

    Only of an official run of at least a complete dataset: the mean of fewer answers may differ by chance.
    """
    stats = record.statistics
    if stats is None or stats.osl_mean is None:
        return ""
    return refused_mean(record, stats.osl_mean, stats.completed)


def refused_mean(record: RunRecord, mean: float, answers: int) -> str:
    """The warning that TEST09 refuses this mean length; "" if it does not, or for too few answers."""
    bounds, plan = mean_length_bounds(record.plan), record.plan
    if bounds is None or plan.audit is not None or record.deviations:
        return ""
    complete = answers >= plan.client.benchmark.dataset(accuracy=False).samples
    if not complete or bounds[0] <= mean <= bounds[1]:
        return ""
    return (
        f"the mean length of the answers is {mean:.2f} tokens, and TEST09 and the check of a submission take "
        f"{bounds[0]:.2f} to {bounds[1]:.2f}: look at the answers, the servers' model and its template first"
    )


def _drafting_warnings(record: RunRecord, drafted: float) -> Iterator[str]:
    """A warning where servers that had not said so drafted tokens, where the rules allow none."""
    benchmark, scenario = record.plan.client.benchmark, record.plan.scenario
    said = any(server.settings.get("speculative_algorithm") for server in record.servers)
    if drafted > 0 and not said and benchmark.official and scenario not in benchmark.speculative_decoding:
        yield (
            f"the servers drafted {drafted:,.0f} tokens, which round {benchmark.round} allows "
            f"{benchmark.name} in {benchmark.drafting_scenarios}: start them without speculative decoding "
            f"for {scenario}"
        )


def _repeat_warnings(stats: Statistics) -> Iterator[str]:
    """Queries that were not answered at the first attempt."""
    if stats.retries:
        yield (
            f"{counted(stats.retries, 'request', 'was')} retried; "
            "the latencies of their queries include the failed attempts"
        )
    if stats.resumed:
        yield (
            f"resumed: {stats.resumed} of {stats.queries} answers are of an earlier attempt; "
            "times, rates and charts are of the others"
        )


def _stream_warnings(rows: Rows, stats: Statistics) -> Iterator[str]:
    """A warning where a scenario with limits for tokens got answers that show no token's time."""
    if stats.completed and stats.ttft is None:
        yield (
            "answers were not streamed: LoadGen's TTFT is the latency of the complete answer, and its TPOT "
            "has no meaning"
        )
    elif text := clump_text(rows):
        yield text


def network_warnings(network: Mapping[str, ReplicaNetwork]) -> Iterator[str]:
    """A warning where segments were lost often enough to be seen in the figures."""
    sent = sum(one.sent for one in network.values())
    received = sum(one.received for one in network.values())
    again = sum(one.retransmitted for one in network.values())
    gaps = sum(one.gaps for one in network.values())
    parts = []
    if again > _LOST_FROM * sent:
        parts.append(f"{again} retransmissions in {sent} segments to the servers")
    if gaps > _LOST_FROM * received:
        parts.append(f"{gaps} of {received} segments from them arrived after a missing one")
    if parts:
        yield (
            f"the network loses packets, or a server's full listen queue does: {', '.join(parts)}"
            f"{_worst(network)}; times include the repetition"
        )


def _worst(network: Mapping[str, ReplicaNetwork]) -> str:
    if len(network) < 2:
        return ""
    lossy = {url: lost for url, one in network.items() if (lost := one.retransmitted + one.gaps)}
    worst = sorted(lossy, key=lossy.__getitem__, reverse=True)[:_NAMED]
    return f" ({len(lossy)} of {len(network)} servers, most at {', '.join(worst)})"
