"""A run as sut/run.py puts it together."""

import pytest

from harness.config.plans import ComplianceSettings
from harness.errors import ConfigError
from sut.run import _first_pass, validity_rules
from sut.run_checks import require_official
from tests.records import ENDED, with_plan

DATASET = ENDED.plan.client.benchmark.dataset(accuracy=False)
TEST09 = ComplianceSettings(test="TEST09", dataset=DATASET, settings={}, text="", official=True)


@pytest.mark.parametrize(
    ("plan", "limited"),
    [
        ({}, True),
        ({"mode": "accuracy"}, False),
        ({"audit": TEST09, "audit_text": "*.*.mode = 2\n"}, False),
    ],
)
def test_only_what_judges_a_run_can_lose_it(plan, limited):
    """Progress and alarms count by the same rules: an accuracy run may take its time."""
    assert bool(validity_rules(with_plan(ENDED, **plan)).limits_ns) is limited


def test_the_first_answers_of_a_measurement_are_judged():
    """Those of an accuracy run come in the dataset's order."""
    assert _first_pass(ENDED) is not None
    assert _first_pass(with_plan(ENDED, mode="accuracy")) is None


def test_a_test_that_deviates_names_the_flag_of_the_guide():
    require_official(with_plan(ENDED, audit=TEST09).plan, ())
    with pytest.raises(ConfigError, match=r"TEST09 would not be official: the seed; .*, or add --rehearsal"):
        require_official(with_plan(ENDED, audit=TEST09).plan, ("the seed",))
