"""The table of scenarios, and its names as users type them."""

import msgspec
import pytest

from harness.config.scenario import Scenario
from harness.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "scenario"),
    [
        ("Offline", Scenario.OFFLINE),
        ("SERVER", Scenario.SERVER),
        ("Interactive", Scenario.INTERACTIVE),
        ("SingleStream", Scenario.SINGLE_STREAM),
        ("single_stream", Scenario.SINGLE_STREAM),
        ("Single-Stream", Scenario.SINGLE_STREAM),
        ("single stream", Scenario.SINGLE_STREAM),
    ],
)
def test_names_in_any_spelling(text, scenario):
    assert Scenario.parse(text) is scenario


@pytest.mark.parametrize("text", ["", "MultiStream", "off", "offline server", "performance"])
def test_other_names_are_refused_with_the_known_ones(text):
    with pytest.raises(ConfigError, match="offline, server, interactive, single-stream"):
        Scenario.parse(text)


def test_a_scenario_is_its_name_in_files():
    assert [f"{scenario}" for scenario in Scenario] == ["offline", "server", "interactive", "single-stream"]
    assert msgspec.json.encode(tuple(Scenario)) == b'["offline","server","interactive","single-stream"]'
    assert msgspec.json.decode(b'"interactive"', type=Scenario) is Scenario.INTERACTIVE
