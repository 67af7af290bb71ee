"""Whether a served name is the benchmark's model: names of published v6.0 submissions and their relatives."""

import pytest

from sut.servers.model_name import Match, match_names

GPT_OSS, R1, LLAMA = "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-R1", "meta-llama/Llama-3.1-8B-Instruct"
R1_REVISION = "56d4cbbb4d29f4355bab4b9a39ccb717a14ad5ad"
SNAPSHOT = "b5c939de8f754692c1647ca79fbf85e8c1e70f8a"

NAMES = [
    (GPT_OSS, "openai/gpt-oss-120b", Match.SAME),
    (GPT_OSS, "gpt-oss-120b", Match.SAME),
    (GPT_OSS, "GPT-OSS-120B", Match.SAME),
    (GPT_OSS, "/models/gpt-oss-120b", Match.SAME),
    (GPT_OSS, "/models/gpt-oss-120b/", Match.SAME),
    (GPT_OSS, "/models/models/openai-gpt-oss-120b", Match.SAME),
    (GPT_OSS, "gpt-oss/gpt-oss-120b", Match.SAME),
    (GPT_OSS, "/model/gpt-oss-120b/orig", Match.SAME),
    (GPT_OSS, f"/hub/models--openai--gpt-oss-120b/snapshots/{SNAPSHOT}", Match.SAME),
    (GPT_OSS, "amd/gpt-oss-120b-w-mxfp4-a-fp8-Mlperf", Match.VARIANT),
    (GPT_OSS, "/model/gpt-oss-120b/fp4_quantized", Match.VARIANT),
    (GPT_OSS, "unsloth/gpt-oss-120b-GGUF", Match.VARIANT),
    (GPT_OSS, "gpt-oss-120b-Q4_K_M.gguf", Match.VARIANT),
    (GPT_OSS, "gpt-oss-120b-mxfp4-00001-of-00003.gguf", Match.VARIANT),
    (GPT_OSS, "openai/gpt-oss-20b", Match.OTHER),
    (GPT_OSS, "gpt-oss-120b-eagle", Match.OTHER),
    (GPT_OSS, "nvidia/gpt-oss-120b-Eagle3-long-context", Match.OTHER),
    (GPT_OSS, "nvidia/gpt-oss-120b-Eagle3-v2", Match.OTHER),
    (GPT_OSS, "not-gpt-oss-120b", Match.OTHER),
    (GPT_OSS, "my-gpt-oss-120b-lora", Match.OTHER),
    (GPT_OSS, "/models/gpt-oss-120b/eagle3", Match.OTHER),
    (GPT_OSS, "gpt-oss-120b2", Match.OTHER),
    (GPT_OSS, "gpt-oss", Match.OTHER),
    (GPT_OSS, "/model", Match.OTHER),
    (GPT_OSS, "/", Match.OTHER),
    (R1, "deepseek-ai/DeepSeek-R1", Match.SAME),
    (R1, "amd/DeepSeek-R1-MXFP4-Preview", Match.VARIANT),
    (R1, "nvidia/DeepSeek-R1-FP4", Match.VARIANT),
    (R1, "deepseek-r1", Match.SAME),
    (R1, "/data/models/DeepSeek-R1/", Match.SAME),
    (R1, f"/hub/models--deepseek-ai--DeepSeek-R1/snapshots/{R1_REVISION}", Match.SAME),
    (R1, "nvidia/DeepSeek-R1-NVFP4", Match.VARIANT),
    (R1, "nvidia/DeepSeek-R1-FP4-v2", Match.VARIANT),
    (R1, "DeepSeek-R1-v2", Match.OTHER),
    (R1, "unsloth/DeepSeek-R1-BF16", Match.VARIANT),
    (R1, "DeepSeek-R1-AWQ", Match.VARIANT),
    (R1, "nvidia/DeepSeek-R1-0528-FP4", Match.OTHER),
    (R1, "deepseek-r1-0528", Match.OTHER),
    (R1, "deepseek-ai/DeepSeek-R1-Zero", Match.OTHER),
    (R1, "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", Match.OTHER),
    (R1, "DeepSeek-R1-Distill-Llama-70B-FP8", Match.OTHER),
    (R1, "lmsys/DeepSeek-R1-NextN", Match.OTHER),
    (R1, "perplexity-ai/r1-1776", Match.OTHER),
    (R1, "deepseek-ai/DeepSeek-V3", Match.OTHER),
    (R1, "tngtech/DeepSeek-TNG-R1T2-Chimera", Match.OTHER),
    (R1, "DeepSeek-R1T-Chimera", Match.OTHER),
    (R1, "deepseek-ai/DeepSeek-R1-0528", Match.OTHER),
    (R1, "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", Match.OTHER),
    (LLAMA, "/data/Meta-Llama-3.1-8B-Instruct", Match.SAME),
    (LLAMA, "meta-llama/Llama-3.1-8B", Match.OTHER),
    (LLAMA, "nvidia/Llama-3.1-8B-Instruct-FP8", Match.VARIANT),
    (LLAMA, "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", Match.VARIANT),
]


@pytest.mark.parametrize(("wanted", "name", "expected"), NAMES, ids=lambda value: str(value))
def test_one_name(wanted, name, expected):
    assert match_names([name], wanted) is expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["/model", "openai/gpt-oss-120b"], Match.SAME),
        (["/models/gpt-oss-120b", "my-server"], Match.SAME),
        (["amd/gpt-oss-120b-w-mxfp4-a-fp8-Mlperf", "openai/gpt-oss-120b"], Match.VARIANT),
        (["nvidia/gpt-oss-120b-Eagle3-v2", "openai/gpt-oss-120b"], Match.OTHER),
        (["/model", "default"], Match.OTHER),
        ([], Match.OTHER),
    ],
)
def test_path_and_served_name_together(names, expected):
    assert match_names(names, GPT_OSS) is expected
