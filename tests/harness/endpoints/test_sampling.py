"""The sampling of the official client's configurations: published ones, its examples, and its defaults."""

import pytest

from harness.config.benchmark import load_benchmark
from harness.endpoints.sampling import sampling_differences

# mlcommons/inference_results_v6.1, closed/NVIDIA/.../deepseek-r1/{Offline,Server}/config.yaml
PUBLISHED_R1 = {
    "temperature": 0.0,
    "top_k": 1,
    "top_p": 1.0,
    "max_new_tokens": 20000,
    "min_new_tokens": 1,
    "skip_special_tokens": True,
}
# mlcommons/endpoints, examples/04_GPTOSS120B_Example and examples/05_Llama_Examples
EXAMPLE = {"temperature": 1.0, "max_new_tokens": 32768, "top_k": -1, "top_p": 1.0}
OF_TWO_LENGTHS = {"temperature": 1.0, "max_new_tokens": 10240, "top_k": 0, "top_p": 1.0}
LLAMA = {"temperature": 0.0, "top_p": 1.0, "max_new_tokens": 128}


def of(parameters, **override):
    performance = {"type": "performance", "generation_config_override": override}
    return {"model_params": parameters, "datasets": [{"type": "accuracy"}, performance]}


@pytest.mark.parametrize(
    ("benchmark", "config", "expected"),
    [
        ("deepseek-r1", of(PUBLISHED_R1), []),
        ("gpt-oss-120b", of(EXAMPLE), []),
        ("gpt-oss-120b", of(OF_TWO_LENGTHS), []),
        ("llama3.1-8b", of(LLAMA), []),
        ("gpt-oss-120b", of({}), []),
        ("gpt-oss-120b", of({"max_new_tokens": 1024}), [("max_new_tokens", "1024", "10,240 or more")]),
        ("gpt-oss-120b", of(EXAMPLE, max_new_tokens=1024), [("max_new_tokens", "1024", "10,240 or more")]),
        ("gpt-oss-120b", of({"max_new_tokens": 1024}, max_new_tokens=10240), []),
        ("gpt-oss-120b", of({"max_new_tokens": "many"}), [("max_new_tokens", "many", "10,240 or more")]),
        ("gpt-oss-120b", of(EXAMPLE | {"temperature": 0}), [("temperature", "0", "1")]),
        (
            "gpt-oss-120b",
            of(EXAMPLE | {"top_p": 0.95, "top_k": 50}),
            [("top_p", "0.95", "1"), ("top_k", "50", "0")],
        ),
        (
            "deepseek-r1",
            of(PUBLISHED_R1 | {"temperature": 0.6, "top_p": 0.95}),
            [("temperature", "0.6", "0")],
        ),
        ("deepseek-r1", of(PUBLISHED_R1 | {"top_p": 0.95}), []),
        ("llama3.1-8b", of(LLAMA | {"repetition_penalty": 1.1}), [("repetition_penalty", "1.1", "1")]),
        ("gpt-oss-120b", of(EXAMPLE | {"presence_penalty": 0.0, "frequency_penalty": 0}), []),
        ("gpt-oss-120b", of(EXAMPLE | {"presence_penalty": 0.5}), [("presence_penalty", "0.5", "0")]),
    ],
)
def test_what_is_not_by_the_rules(benchmark, config, expected):
    assert list(sampling_differences(config, load_benchmark(benchmark))) == expected
