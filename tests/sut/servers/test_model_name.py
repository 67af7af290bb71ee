"""Whether a served name is the benchmark's model: names of published v6.0 submissions and their relatives."""

import tomllib
from pathlib import Path

import pytest

from sut.servers.model_name import Match, match_names

GPT_OSS = "openai/gpt-oss-120b"
MODELS = tomllib.loads((Path(__file__).parent / "model_names.toml").read_text())
NAMES = [
    (wanted, name, Match[kind.upper()])
    for wanted, kinds in MODELS.items()
    for kind, names in kinds.items()
    for name in names
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
