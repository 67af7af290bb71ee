"""Whether the runs of a scenario come from one place: a submission takes no others.

It is asked before each run, since the folder could only be refused after all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from harness.campaign.campaign_file import Campaign
from harness.campaign.standing import Standing, other_url
from harness.campaign.steps import Step
from harness.files import ROOT
from harness.git import ask_git, checkout_command
from harness.record.provenance import GitState, git_state
from harness.record.run_record import RunRecord
from harness.submission.tree.origins import PLACES, origin_differences

_RUNS = ("performance", "accuracy", "test")


def other_origins(
    campaign: Campaign, step: Step, steps: Sequence[Step], standing_of: Callable[[Step], Standing]
) -> Iterator[str]:
    """Why the next run and those that are done could not be submitted together."""
    done = runs_beside(campaign, step, steps, standing_of)
    yield from (text for what, text in origin_differences(done) if what not in PLACES)
    here = git_state(ROOT) if done else None
    for name, record in done.items():
        yield from _other_commit(ROOT, name, record.provenance.git, here)
        if text := other_url(step, record):
            yield f"{name} is {text}: write the earlier one"


def runs_beside(
    campaign: Campaign, step: Step, steps: Sequence[Step], standing_of: Callable[[Step], Standing]
) -> dict[str, RunRecord]:
    """The other runs of the step's scenario that are done, by name."""
    if campaign.rehearsal or step.kind not in _RUNS:
        return {}
    scenario = step.name.rpartition("/")[0]
    return {
        one.name: record
        for one in steps
        if one.name.rpartition("/")[0] == scenario and one.kind in _RUNS and one.name != step.name
        if (found := standing_of(one)).state == "done" and (record := found.record) is not None
    }


def _other_commit(root: Path, name: str, before: GitState | None, here: GitState | None) -> Iterator[str]:
    if before is not None and here is not None and str(before) != str(here):
        yield (
            f"{name} is of commit {before} of the harness, and this checkout is at {here}: "
            f"{_back_to(root, before, here)}"
        )


def _back_to(root: Path, before: GitState, here: GitState) -> str:
    """What a user types for the code of earlier runs; only the git that stored local changes has them."""
    command = f"{'git stash && ' if here.dirty else ''}{checkout_command(root, before.commit)}"
    if not before.dirty:
        return command
    if before.tree is None or ask_git(root, "cat-file", "-e", before.tree) is None:
        return "continue in the checkout that made it; git in this one does not have its local changes"
    return f"{command} && git diff {before.commit} {before.tree} | git apply"
