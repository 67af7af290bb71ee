"""How far a step is, from the record of its run."""

import pytest
from msgspec import structs

from harness.campaign.campaign_file import read_campaign
from harness.campaign.standing import standing
from harness.campaign.steps import steps_of
from harness.files import RUN_RECORD, sha256_of
from harness.record.run_record import RunVerdict
from tests.records import ENDED

FILE = 'submitter = "Org"\nsystem_id = "box"\n[benchmarks.gpt-oss-120b.offline]\n'
SHORT = "LoadGen reports INVALID: Min duration not satisfied"


@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        (RunVerdict("VALID", (), complete=True), "done"),
        (RunVerdict("INVALID", (SHORT,), complete=True), "done"),  # a fast machine has it done too soon
        (RunVerdict("INVALID", ("3 of 64 queries failed",)), "failed"),
        (RunVerdict("INTERRUPTED"), "incomplete"),
        (None, "incomplete"),
    ],
)
def test_a_rehearsal_asks_for_complete_runs_and_for_no_speed(tmp_path, verdict, state):
    (tmp_path / "my.toml").write_text(FILE)
    campaign = read_campaign(tmp_path / "my.toml", rehearsal=True)
    step = next(one for one in steps_of(campaign) if one.kind == "performance")
    settled = structs.replace(ENDED.settled, dataset_sha256=sha256_of(step.plan.client.input_file))
    record = structs.replace(ENDED, plan=step.plan, settled=settled, verdict=verdict)
    step.folder.mkdir(parents=True)
    record.write(step.folder / RUN_RECORD)
    found = standing(campaign, step)
    assert found.state == state, found.text


def campaign_of(folder, text):
    """A campaign of gpt-oss-120b with ``text`` in its table and with files of data that are empty."""
    files = ("performance", "accuracy", "compliance", "lcb_data")
    for name in files:
        (folder / name).touch()
    (folder / "my.toml").write_text(
        'submitter = "Org"\nsystem_id = "box"\n[benchmarks.gpt-oss-120b]\n'
        + "".join(f"{name} = '{name}'\n" for name in files)
        + text
    )
    return read_campaign(folder / "my.toml")


def test_a_run_asks_its_servers_as_their_table_says(tmp_path):
    table = "servers = { backend = 'trtllm', api = 'chat-ids' }\noffline = { target_qps = 9.0 }\n"
    steps = steps_of(campaign_of(tmp_path, table))
    (run,) = [one for one in steps if one.kind == "performance"]
    assert "--backend trtllm --api chat-ids" in " ".join(run.words)
    assert run.plan.client.api == "chat-ids"


def test_the_trial_of_one_server_command_leaves_that_of_another(tmp_path):
    """Else a campaign that is done would start both servers again, each time it is called."""
    scenarios = "".join(
        f"{name} = {{ target_qps = 9.0, servers.command = 'serve --for {name}' }}\n"
        for name in ("offline", "server")
    )
    campaign = campaign_of(tmp_path, scenarios)
    trials = [one for one in steps_of(campaign) if one.kind == "trial"]
    for step in trials:
        settled = structs.replace(ENDED.settled, dataset_sha256=sha256_of(step.plan.client.input_file))
        provenance = structs.replace(ENDED.provenance, server_command=step.servers.command)
        step.folder.mkdir(parents=True, exist_ok=True)
        ended = {"plan": step.plan, "settled": settled, "provenance": provenance}
        structs.replace(ENDED, verdict=RunVerdict("VALID", (), complete=True), **ended).write(
            step.folder / RUN_RECORD
        )
    assert [standing(campaign, step).state for step in trials] == ["done", "done"]
