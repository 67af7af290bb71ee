"""A run as sut/run.py puts it together."""

import pytest

from harness.config.plans import ComplianceSettings
from sut.run import validity_rules
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
