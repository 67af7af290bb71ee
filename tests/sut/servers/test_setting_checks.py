"""SGLang's start options that make a run another one than the rules say."""

import pytest

from harness.config.benchmark import load_benchmark
from harness.config.scenario import Scenario
from harness.record.settled import Router
from sut.servers.info_pages import NOT_NAMED, SMG, with_router
from sut.servers.setting_checks import (
    closed_division_deviations,
    draft_warnings,
    queue_warnings,
    setting_deviations,
    setting_warnings,
    unseen_option_warnings,
)
from tests.kit import DATA
from tests.sut.pages import fact_of, facts
from tests.sut.servers.test_info_pages import GATEWAY

SPECULATIVE = {"speculative_algorithm": "EAGLE3", "speculative_accept_threshold_single": 1.0}
PREFERRED = "preferred_sampling_params"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, ""),
        (SPECULATIVE, ""),
        (SPECULATIVE | {"speculative_accept_threshold_acc": 0.5}, "speculative_accept_threshold_acc 0.5"),
        (SPECULATIVE | {"speculative_accept_threshold_single": 0.9}, "threshold_single 0.9, expected 1"),
        ({"speculative_accept_threshold_single": 0.9}, ""),  # nothing is drafted
        ({PREFERRED: '{"min_p":0.1,"temperature":0.5}'}, "to each request (min_p), expected none"),
        ({PREFERRED: '{"temperature":0.5,"top_p":0.9,"top_k":5}'}, ""),  # requests have their own
        ({PREFERRED: "no JSON"}, "that cannot be read"),
        ({PREFERRED: "[1]"}, "that cannot be read"),
        ({PREFERRED: '{"min_p":0.0,"repetition_penalty":1.0,"n":null}'}, ""),  # they do nothing
        ({"watermark_default_enabled": True}, "watermark"),
        ({"watermark_enforce_all": True, "watermark_default_enabled": False}, "watermark"),
    ],
)
def test_settings_by_which_answers_are_not_the_models(settings, words):
    found = list(setting_deviations([facts("http://a:1", settings=settings)] * 2))
    assert len(found) == bool(words)
    assert all(line.startswith("http://a:1") and words in line for line in found)


EAGLE3 = {"speculative_algorithm": "EAGLE3", "speculative_num_steps": 3, "speculative_eagle_topk": 1}
EAGLE = EAGLE3 | {"speculative_algorithm": "EAGLE"}
SERVER, INTERACTIVE = Scenario.SERVER, Scenario.INTERACTIVE
ALLOWED = "gpt-oss-120b in interactive; start it without speculative decoding for "


def judged(settings, benchmark, scenario, round_name=None, **more):
    rules = load_benchmark(benchmark, round_name)
    found = [facts("http://a:1", settings=settings, **more)]
    return [*closed_division_deviations(found, rules, scenario)], [*draft_warnings(found, rules, scenario)]


@pytest.mark.parametrize(
    ("settings", "benchmark", "scenario", "words"),
    [
        ({}, "gpt-oss-120b", SERVER, ""),
        ({"disable_radix_cache": True}, "gpt-oss-120b", SERVER, ""),
        ({"disable_radix_cache": False}, "gpt-oss-120b", SERVER, "--disable-radix-cache"),
        (EAGLE3, "gpt-oss-120b", INTERACTIVE, ""),
        ({"speculative_algorithm": "EAGLE3"}, "gpt-oss-120b", INTERACTIVE, ""),  # what is not reported
        (EAGLE3, "gpt-oss-120b", SERVER, f"drafts tokens (EAGLE3), which round v6.1 allows {ALLOWED}server"),
        (EAGLE3, "gpt-oss-120b", Scenario.OFFLINE, f"{ALLOWED}offline"),
        (EAGLE3 | {"speculative_num_steps": 7}, "gpt-oss-120b", INTERACTIVE, "num_steps 7, expected 3"),
        (EAGLE3 | {"speculative_eagle_topk": 8}, "gpt-oss-120b", INTERACTIVE, "eagle_topk 8, expected 1"),
        (EAGLE3 | {"speculative_algorithm": "NGRAM"}, "gpt-oss-120b", INTERACTIVE, "NGRAM, expected EAGLE3"),
        (EAGLE, "deepseek-r1", INTERACTIVE, ""),
        (EAGLE3, "deepseek-r1", INTERACTIVE, "EAGLE3, expected EAGLE"),
        (EAGLE3, "llama3.1-8b", INTERACTIVE, "llama3.1-8b in no scenario"),
    ],
)
def test_what_the_closed_division_allows_no_server(settings, benchmark, scenario, words):
    """MLPerf Inference Rules: appendix on speculative decoding; no KV cache across queries."""
    found, _ = judged(settings, benchmark, scenario)
    assert len(found) == bool(words)
    assert all(words in line for line in found)


def vllm(page):
    """A server's facts by the metrics of a real vLLM 0.32.0; one drafts three tokens by ngram."""
    models = {"data": [{"id": "openai/gpt-oss-120b", "owned_by": "vllm", "root": "openai/gpt-oss-120b"}]}
    return fact_of({"/v1/models": models, "/metrics": (DATA / "metrics" / page).read_bytes()}, "vllm")


def test_vllms_metrics_show_its_cache_and_its_drafts():
    drafting, caching = vllm("vllm_drafting.txt"), vllm("vllm_busy1.txt")
    assert drafting.settings == {
        "enable_prefix_caching": False,
        "kv_cache_dtype": "auto",
        "speculative_algorithm": NOT_NAMED,
        "speculative_num_steps": 3,
    }
    assert caching.settings == {"enable_prefix_caching": True, "kv_cache_dtype": "auto"}
    (line,) = closed_division_deviations([caching], load_benchmark("gpt-oss-120b"), SERVER)
    assert "--no-enable-prefix-caching" in line
    (line,) = closed_division_deviations([drafting], load_benchmark("gpt-oss-120b"), SERVER)
    assert ALLOWED in line
    rules = load_benchmark("gpt-oss-120b"), INTERACTIVE
    assert not [*closed_division_deviations([drafting], *rules)]
    (line,) = draft_warnings([drafting], *rules)
    assert "a model that it does not name: it must be nvidia/gpt-oss-120b-Eagle3-long-context" in line


def test_vllms_metrics_with_several_api_servers_before_the_first_request():
    """vLLM 0.33.0 with --api-server-count 2 and --enable-prefix-caching: its gauges are not there yet."""
    idle = vllm("vllm_api_servers.txt")
    assert (idle.dp_size, idle.settings["enable_prefix_caching"]) == (1, True)


def test_drafts_of_gpt_oss_are_allowed_since_v6_1():
    (line,) = judged(EAGLE3, "gpt-oss-120b", INTERACTIVE, "v6.0")[0]
    assert "round v6.0 allows gpt-oss-120b in no scenario" in line


def test_a_router_that_hides_the_options():
    """The page of sglang-router 0.3.2; SMG and vllm-router pass on that of a server, with its options."""
    own = {"router_manager": True, "routers_count": 1, "workers_count": 2}
    table = GATEWAY | {"/get_loads": {"workers": []}, "/get_server_info": own}
    (warning,) = unseen_option_warnings([fact_of(table)])
    assert "sglang-router does not show" in warning and "doctor" in warning
    cached = GATEWAY | {"/get_server_info": {"disable_radix_cache": False, "version": "0.5.23"}}
    assert not list(unseen_option_warnings([fact_of(cached)]))
    # vLLM is "no SGLang server" to a doctor without --backend.
    (warning,) = unseen_option_warnings([facts("http://a:1", wire="openai", router=Router("nginx"))])
    assert warning.endswith("./mlperf doctor --backend openai --server-url SERVER")


def test_a_server_that_hides_its_options():
    """vLLM with --disable-log-stats has no metrics, and keeps a prefix cache unless told not to."""
    silent = [facts("http://a:1"), facts("http://b:1", wire="openai"), facts("http://c:1", wire="llamacpp")]
    sglang, vllm = unseen_option_warnings(silent)
    assert sglang.startswith("http://a:1: does not show its options") and "/server_info" in sglang
    assert vllm.startswith("http://b:1: does not show its options") and "--disable-log-stats" in vllm


@pytest.mark.parametrize(
    ("benchmark", "path", "words"),
    [
        ("gpt-oss-120b", "nvidia/gpt-oss-120b-Eagle3-long-context", ""),
        ("gpt-oss-120b", "/models/gpt-oss-120b-eagle3-long-context/snapshots/1", ""),
        (
            "gpt-oss-120b",
            "acme/drafts",
            "drafts with acme/drafts: it must be nvidia/gpt-oss-120b-Eagle3-long-context, at its precision",
        ),
        ("deepseek-r1", None, ""),
        ("deepseek-r1", "/models/r1", ""),
        ("deepseek-r1", "/models/other", "it must be the model's own head"),
    ],
)
def test_a_draft_model_of_another_name_is_a_warning(benchmark, path, words):
    settings = EAGLE3 if benchmark == "gpt-oss-120b" else EAGLE
    settings = settings | {"speculative_draft_model_path": path} if path else settings
    found = judged(settings, benchmark, INTERACTIVE, model_path="/models/r1")[1]
    assert len(found) == bool(words)
    assert all(words in line for line in found)
    drafts_nothing = {"speculative_draft_model_path": path}
    assert judged(drafts_nothing, benchmark, INTERACTIVE, model_path="/models/r1")[1] == []


@pytest.mark.parametrize("change", ["", "{}", '{"num_experts_per_tok": 2}'])
def test_a_changed_configuration_is_told(change):
    found = list(setting_warnings([facts("http://a:1", settings={"json_model_override_args": change})]))
    assert len(found) == (len(change) > 2)
    assert all(change in line for line in found)


def test_an_object_among_the_settings_is_its_json():
    """As SGLang reports --preferred-sampling-params."""
    info = {"preferred_sampling_params": {"min_p": 0.1}, "tp_size": 1, "cuda_graph_config": {}}
    fact = fact_of({"/model_info": {"model_path": "m"}, "/server_info": info})
    assert fact.settings == {"preferred_sampling_params": '{"min_p":0.1}', "tp_size": 1}


def test_options_that_say_nothing_are_left_out():
    """As SGLang reports them where none was given."""
    unsaid = {"json_model_override_args": "{}", "watermark_enforce_all": False, "attn_dp_size": 1}
    unsaid |= {"speculative_accept_threshold_single": 1.0, "speculative_accept_threshold_acc": 1.0}
    info = unsaid | {"watermark_default_enabled": True, "dp_size": 1}
    fact = fact_of({"/model_info": {"model_path": "m"}, "/server_info": info})
    assert fact.settings == {"watermark_default_enabled": True, "dp_size": 1}


@pytest.mark.parametrize(
    ("settings", "in_flight", "all_at_once", "advised"),
    [
        # Offline of 16 queries at SGLang 0.5.23 with these limits: 3 were refused, with 503.
        ({"max_queued_requests": 4}, 8, True, 4),
        ({"max_queued_requests": 4}, 4, True, None),
        ({"max_queued_requests": 4}, 8, False, None),
        ({"max_queued_requests": 4}, 9, False, 8),
        ({}, 1000, True, None),
    ],
)
def test_a_bounded_queue(settings, in_flight, all_at_once, advised):
    """Of one server, of one with two ranks, of two that share twice the load, and of two behind a router."""
    of_ranks = {name: value // 2 for name, value in settings.items()}
    one = {"settings": settings, "dp_size": 1, "max_running_requests": 4}
    behind = with_router(facts("http://r", **one), Router(SMG, servers=2))
    for count, servers in (
        (1, [facts("http://a", **one)]),
        (1, [facts("http://a", settings=of_ranks, dp_size=2, max_running_requests=4)]),
        (2, [facts("http://a:1", **one), facts("http://a:2", **one)]),
        (2, [behind]),
    ):
        found = list(queue_warnings(servers, count * in_flight, all_at_once=all_at_once))
        assert len(found) == (advised is not None)
        assert all(line.endswith(f"--max-concurrency {count * (advised or 0)}") for line in found)


def test_a_bounded_queue_of_a_server_that_does_not_name_its_limit():
    servers = [facts("http://a", settings={"max_queued_requests": 4})]
    (line,) = queue_warnings(servers, 5, all_at_once=False)
    assert line == (
        "http://a refuses requests when 4 are queued (--max-queued-requests), and up to 5 may be in flight "
        "at once: each that it refuses is a failed query. Start it without that flag, or set "
        "--max-concurrency 4"
    )
