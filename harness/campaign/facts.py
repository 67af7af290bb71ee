"""The facts that only the submitter knows, checked before the first run: the build would ask for them."""

import platform
from collections.abc import Iterator

from harness.campaign.campaign_file import Campaign
from harness.errors import ConfigError
from harness.submission.building.descriptions import FROM_RUNS, measurements, system_fields
from harness.submission.building.machine import machine_fields
from harness.submission.tree.origins import is_here
from harness.submission.tree.round_rules import RoundRules, load_rules
from harness.submission.tree.system_description import other_suite, system_issues

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
    issues = [*system_issues(fields, rules.system, folders), *_other_suites(campaign, rules)]
    issues += _measurements(campaign, rules)
    if issues:
        raise ConfigError(
            f"{campaign.file}: the folder to submit could not be built: {'; '.join(issues)}; write these "
            "into [system] and [measurements] ('./mlperf submit system' prints them on a node of the system)"
        )


def _other_suites(campaign: Campaign, rules: RoundRules) -> Iterator[str]:
    """A benchmark of edge systems in the file of a datacenter system, or the reverse."""
    for name in campaign.benchmarks if campaign.strict else ():
        suite, _ = rules.suite_of(name)
        if text := other_suite(campaign.info.system, suite, name):
            yield text


def _measurements(campaign: Campaign, rules: RoundRules) -> Iterator[str]:
    for benchmark, _ in campaign.benchmarks.values():
        try:
            measurements(campaign.info, benchmark, rules)
        except ConfigError as error:
            yield str(error)
            return


def other_scenarios(campaign: Campaign) -> Iterator[str]:
    """The scenarios that a closed result of a benchmark needs or must not have, against those of the file.

    A line for each, and no error: another file may have the others.
    """
    if not campaign.strict:
        return
    rules = load_rules(campaign.info.round)
    for name, (_, part) in campaign.benchmarks.items():
        _, suite = rules.suite_of(name)
        for group in suite.missing(part.scenarios):
            what = " or ".join(scenario.folder for scenario in group)
            yield f"{campaign.file}: {name} has no {what}, which a closed result needs: add its table"
        for scenario in part.scenarios:
            if scenario not in suite.allowed:
                allowed = ", ".join(one.folder for one in suite.allowed)
                yield (
                    f"{campaign.file}: {name} has {scenario.folder}, which no closed result may have (only "
                    f"{allowed}): remove its table"
                )
