"""What to do about a step that is lost: the lines after its reason."""

import shlex
from collections.abc import Iterator

from harness.campaign.campaign_file import Campaign, toml_key
from harness.campaign.standing import Standing
from harness.campaign.steps import Step
from harness.cli.commands import of_verb, shown
from harness.compliance.registry import TESTS
from harness.config.scenario import Scenario
from harness.files import ACCURACY_TEXT

_OF_THE_MODEL = ("TEST07", "TEST09")  # what they measure is the model's; TEST06 compares files of one run


def advice(campaign: Campaign, step: Step, found: Standing) -> Iterator[str]:
    """Lines with the remedy."""
    benchmark, _, rest = step.name.partition("/")
    scenario = rest.partition("/")[0]
    table = f"[benchmarks.{toml_key(benchmark)}.{scenario}]"
    if campaign.strict and found.record is not None and found.record.deviations:
        yield f"Remove what deviates, from {campaign.file} or from the servers."
    elif step.kind == "performance" and found.record is not None and not found.record.is_valid:
        rate = Scenario.parse(scenario).rate_key
        # A rate that a search has found is written as "search" already.
        search = "" if step.found_rate or rate != "target_qps" else ', or target_qps = "search"'
        yield f"Write another {rate} into {table} of {campaign.file}{search}."
    elif step.kind == "score" or step.test in _OF_THE_MODEL:
        text = TESTS[step.test].verify_file if step.test else ACCURACY_TEXT
        yield (
            f"See {step.folder / text}: the model, its quantization or its parameters are not those of the "
            "reference."
        )
    yield f"To make it once more as it is: {calling(campaign, '--restart', step.name)}"


def calling(campaign: Campaign, *more: str) -> str:
    """The command that continues the campaign, ready to paste."""
    rehearsal = ["--rehearsal"] if campaign.rehearsal else []
    return shlex.join([*of_verb("campaign"), str(shown(campaign.file)), *rehearsal, *more])
