"""The load of a plan on the client, as far as flags and conf files show it before LoadGen starts."""

import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from harness.config.loadgen_conf import Number
from harness.config.plan import RunPlan
from sut.client.addresses import is_own_address
from sut.supervisor.placement import Load

_LOADGEN_QPS = 1.0  # LoadGen's own target_qps of Server
_MEAN_LENGTH = "reference_mean_output_tokens"  # of a compliance test: no other rule states a mean length


def expected_load(plan: RunPlan, settings: Mapping[str, Number]) -> Load:
    """The load; for Server it follows from the target rate, as if each token were an event of its own."""
    if plan.scenario.one_at_a_time:
        return Load(open_at_most=1)
    if not plan.scenario.poisson:
        return Load(open_at_most=plan.max_concurrency)
    qps = float(settings.get("target_qps", _LOADGEN_QPS))
    tokens = output_tokens(plan)
    streams = round(qps * _longest_s(plan, tokens)) or 1
    events = qps * (tokens if plan.parameters.stream else 1)
    return Load(plan.max_concurrency, streams, qps, events)


def output_tokens(plan: RunPlan) -> float:
    """The mean length of an answer where the benchmark states one, else the longest that is allowed."""
    longest = plan.parameters.max_new_tokens
    tests = plan.benchmark.compliance.values()
    stated = [float(test[_MEAN_LENGTH]) for test in tests if _MEAN_LENGTH in test]
    return longest if plan.accuracy else min([longest, *stated])


def server_is_here(plan: RunPlan) -> bool:
    """Whether a server shares this machine."""
    return plan.backend == "embedded" or any(
        is_own_host(urlsplit(url).hostname or "") for url in plan.server_urls
    )


def is_own_host(host: str) -> bool:
    """Whether a name resolves to an address of this machine."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    return any(is_own_address(int(family), str(address[0])) for family, _, _, _, address in found)


def _longest_s(plan: RunPlan, tokens: float) -> float:
    """Seconds that an answer takes at the benchmark's limits: valid runs are not slower."""
    limits = plan.benchmark.latency_limits.get(plan.scenario)
    if limits is None:
        return 0.0
    return (limits.ttft_ms + tokens * limits.tpot_ms) / 1000
