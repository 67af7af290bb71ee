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


def test_a_run_asks_its_servers_as_their_table_says(tmp_path):
    files = ("performance", "accuracy", "compliance", "lcb_data")
    for name in files:
        (tmp_path / name).touch()
    (tmp_path / "my.toml").write_text(
        'submitter = "Org"\nsystem_id = "box"\n[benchmarks.gpt-oss-120b]\n'
        + "".join(f"{name} = '{name}'\n" for name in files)
        + "servers = { backend = 'trtllm', api = 'chat-ids' }\noffline = { target_qps = 9.0 }\n"
    )
    steps = steps_of(read_campaign(tmp_path / "my.toml"))
    (run,) = [one for one in steps if one.kind == "performance"]
    assert "--backend trtllm --api chat-ids" in " ".join(run.words)
    assert run.plan.client.api == "chat-ids"
