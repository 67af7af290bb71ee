"""The facts that only the submitter knows, checked before the first run: the build would ask for them."""

import platform
from collections.abc import Iterator

from harness.campaign.campaign_file import Campaign
from harness.errors import ConfigError
from harness.submission.building.descriptions import FROM_RUNS, measurements, system_fields
from harness.submission.building.machine import machine_fields
from harness.submission.tree.origins import is_here
from harness.submission.tree.round_rules import RoundRules, load_rules
from harness.submission.tree.system_description import system_issues

_KNOWN_LATER = "from the runs"


def require_complete(campaign: Campaign) -> None:
    """Raise ConfigError that names what the file lacks for the folder to submit."""
    if campaign.rehearsal:
        return
    rules = load_rules(campaign.info.round)
    folders = {"division": campaign.info.division, "submitter": campaign.info.submitter}
    machine = machine_fields() if all(is_here(url, platform.node()) for url in campaign.urls()) else {}
    fields = system_fields(campaign.info, folders, machine, [], rules)
    fields |= {name: _KNOWN_LATER for name in FROM_RUNS if not fields.get(name)}
    issues = [*system_issues(fields, rules.system, folders), *_measurements(campaign, rules)]
    if issues:
        raise ConfigError(
            f"{campaign.file}: the folder to submit could not be built: {'; '.join(issues)}; write these "
            "into [system] and [measurements] ('./mlperf submit system' prints them on a node of the system)"
        )


def _measurements(campaign: Campaign, rules: RoundRules) -> Iterator[str]:
    for benchmark, _ in campaign.benchmarks.values():
        try:
            measurements(campaign.info, benchmark, rules)
        except ConfigError as error:
            yield str(error)
            return
