"""What to do about a step that is lost: the lines after its reason."""

from collections.abc import Iterator

from harness.campaign.campaign_file import Campaign
from harness.campaign.standing import Standing
from harness.campaign.steps import Step
from harness.files import ACCURACY_TEXT


def advice(campaign: Campaign, step: Step, found: Standing) -> Iterator[str]:
    """Lines with the remedy."""
    table = f"[benchmarks.{'.'.join(step.name.split('/')[:2])}]"
    if campaign.strict and found.record is not None and found.record.deviations:
        yield f"Remove what deviates, from {campaign.file} or from the servers."
    elif step.kind == "performance":
        yield f'Write another target_qps into {table} of {campaign.file}, or target_qps = "search".'
    elif step.kind == "score":
        yield (
            f"See {step.folder / ACCURACY_TEXT}: the model, its quantization or its parameters are not "
            "those of the reference."
        )
    yield f"To make it once more as it is: add --restart {step.name}"
