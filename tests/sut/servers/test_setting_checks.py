"""SGLang's start options that make a run another one than the rules say."""

import pytest

from sut.servers.setting_checks import prefix_cache_warnings, setting_deviations, setting_warnings
from tests.sut.pages import fact_of, facts

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
        ({PREFERRED: "no JSON"}, ""),
        ({"watermark_default_enabled": True}, "watermark"),
        ({"watermark_enforce_all": True, "watermark_default_enabled": False}, "watermark"),
    ],
)
def test_settings_by_which_answers_are_not_the_models(settings, words):
    found = list(setting_deviations([facts("http://a:1", settings=settings)] * 2))
    assert len(found) == bool(words)
    assert all(line.startswith("http://a:1") and words in line for line in found)


@pytest.mark.parametrize(
    ("settings", "warns"),
    [({}, 0), ({"disable_radix_cache": True}, 0), ({"disable_radix_cache": False}, 1)],
)
def test_a_prefix_cache_is_told_before_a_run(settings, warns):
    """SGLang has one unless it was started with --disable-radix-cache."""
    found = list(prefix_cache_warnings([facts("http://a:1", settings=settings)]))
    assert len(found) == warns
    assert all("--disable-radix-cache" in line for line in found)


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
