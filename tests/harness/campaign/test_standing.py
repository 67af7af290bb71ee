"""How far a step is, from the record of its run."""

import json
import shutil
import subprocess
from datetime import UTC, datetime

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from harness.campaign import campaign_command
from harness.campaign.advice import advice
from harness.campaign.campaign_command import _named, _restarts, _Walk
from harness.campaign.campaign_console import CampaignState, reasons, remaining, rows
from harness.campaign.campaign_file import Servers, read_campaign
from harness.campaign.campaign_options import CampaignOptions
from harness.campaign.campaign_page import write_campaign_page
from harness.campaign.facts import require_complete
from harness.campaign.journal import Journal
from harness.campaign.origins import _other_commit, other_origins
from harness.campaign.searches import search_folder
from harness.campaign.servers import ServerCommand
from harness.campaign.standing import Standing, standing, standings, write_made
from harness.campaign.steps import missing_files, other_files, steps_of
from harness.compliance.registry import TESTS
from harness.config.loadgen_conf import with_rows
from harness.errors import EXIT_INVALID, EXIT_SERVER, ConfigError
from harness.files import (
    ACCURACY,
    ACCURACY_LOG,
    ACCURACY_TEXT,
    COMPLIANCE_RUN,
    DETAIL,
    JOURNAL_DIR,
    PERFORMANCE,
    PROGRESS,
    ROOT,
    RUN_RECORD,
    SUMMARY,
    USER_CONF,
    sha256_of,
)
from harness.peak.search.conclusion import Conclusion
from harness.peak.search.offline_rate import (
    SHORT_CONF,
    SHORT_RUN,
    OfflineRate,
    withdraw_offline_rate,
    write_offline_rate,
)
from harness.peak.search.policy import History
from harness.peak.search.probe import Probe
from harness.peak.search.probe_record import FOUND_RATE
from harness.peak.search.search_state import SearchState
from harness.record.answer_log import encode_answer
from harness.record.provenance import git_state
from harness.record.resume import newest_run
from harness.record.run_events import RunEvent
from harness.record.run_record import EncodedAnswers, RunVerdict
from harness.submission.building import source_code
from harness.submission.tree.origins import BESIDE
from tests.harness.analysis.test_verdict import by_the_clocks
from tests.harness.campaign.test_searches import IDENTITY
from tests.harness.submission.building import commit, git, write_info
from tests.records import ENDED, score, write_logs
from tests.runs import SAMPLES

FILE = 'submitter = "Org"\nsystem_id = "box"\n[benchmarks.gpt-oss-120b.offline]\n'
SHORT = "LoadGen reports INVALID: Min duration not satisfied"


@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        (RunVerdict("VALID", (), complete=True), "done"),
        (RunVerdict("INVALID", (SHORT,), complete=True), "done"),  # a fast machine has it done too soon
        (RunVerdict("INVALID", ("3 of 64 queries failed",)), "failed"),
        (RunVerdict("INTERRUPTED"), "other"),  # only accuracy runs continue
        (None, "other"),
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
    write_logs(step.folder)
    found = standing(campaign, step)
    assert found.state == state, found.text
    assert verdict is not None or found.text == "has not ended or was killed"  # by hand it may run now


def campaign_of(folder, text, top=""):
    """A campaign of gpt-oss-120b with ``text`` in its table and with files of data that are empty."""
    files = ("performance", "accuracy", "compliance", "lcb_data")
    for name in files:
        (folder / name).touch()
    (folder / "my.toml").write_text(
        f'submitter = "Org"\nsystem_id = "box"\n{top}[benchmarks.gpt-oss-120b]\n'
        + "".join(f"{name} = '{name}'\n" for name in files)
        + text
    )
    return read_campaign(folder / "my.toml")


def campaign_with(folder, kind, text="server = { target_qps = 9.0 }\n", top=""):
    """The same, and its first step of a kind."""
    campaign = campaign_of(folder, text, top)
    return campaign, next(one for one in steps_of(campaign) if one.kind == kind)


def walk_of(campaign, anew=None):
    folder = campaign.file.parent
    return _Walk(campaign, Journal(folder, 0), ServerCommand(folder, folder), anew or {})


def test_a_run_asks_its_servers_as_their_table_says(tmp_path):
    table = (
        "servers = { backend = 'trtllm', api = 'chat-ids', url = '@nodes' }\n"
        "tokenizer = 'tok'\noffline = { target_qps = 9.0 }\n"
    )
    (tmp_path / "nodes").write_text("http://a:1\n")
    (tmp_path / "tok").mkdir()
    steps = steps_of(campaign_of(tmp_path, table))
    (run,) = [one for one in steps if one.kind == "performance"]
    assert "--backend trtllm --api chat-ids" in " ".join(run.words)
    assert run.plan.client.api == "chat-ids"
    assert f"@{tmp_path}/nodes" in run.words  # a command that is printed works in every folder
    (score,) = [one for one in steps if one.kind == "score"]
    assert str(tmp_path / "tok") in score.words


@pytest.mark.parametrize("division", ["closed", "open"])
def test_only_files_that_a_step_reads_are_missed(tmp_path, division):
    """The open division has no compliance tests."""
    campaign = campaign_of(tmp_path, "offline = { target_qps = 9.0 }\n", f"division = '{division}'\n")
    (tmp_path / "compliance").unlink()
    reads = any(str(tmp_path / "compliance") in step.words for step in steps_of(campaign))
    missing = list(missing_files(campaign))
    assert [reads, len(missing)] == ([True, 1] if division == "closed" else [False, 0])


def test_a_dry_run_before_the_download_shows_the_steps(tmp_path, capsys, nothing_downloaded):
    (tmp_path / "my.toml").write_text(FILE.replace("gpt-oss-120b", '"llama3.1-8b"'))
    remedy = r'or write into \[benchmarks."llama3.1-8b"\]: performance = FILE, accuracy = FILE;'
    with pytest.raises(ConfigError, match=remedy):
        campaign_command.run(CampaignOptions(file=tmp_path / "my.toml", dry_run=True))
    assert "llama3.1-8b/offline/TEST06: " in capsys.readouterr().out


def test_a_user_conf_that_is_not_there_is_missed(tmp_path):
    campaign = campaign_of(tmp_path, "user_conf = 'nowhere'\noffline = { target_qps = 9.0 }\n")
    (missed,) = missing_files(campaign)
    assert f"no such file {tmp_path / 'nowhere'}" in missed


@pytest.mark.parametrize(
    ("benchmark", "needs"), [("gpt-oss-120b", True), ("deepseek-r1", True), ("llama3.1-8b", False)]
)
def test_the_tests_of_programs_are_missed_before_runs_of_hours(
    tmp_path, nothing_downloaded, benchmark, needs
):
    """Of deepseek-r1 the score said so, after the accuracy run."""
    text = f'submitter = "Org"\nsystem_id = "box"\n[benchmarks."{benchmark}".offline]\ntarget_qps = 9.0\n'
    (tmp_path / "my.toml").write_text(text)
    missed = list(missing_files(read_campaign(tmp_path / "my.toml")))
    fetch = f"datasets/download.sh --benchmark {benchmark} --what livecodebench"
    assert [fetch in line for line in missed if "LiveCodeBench" in line] == [True] * needs


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(("names", "needs"), [("math500|gpqa", 0), ("livecodebench|gpqa", 1)])
def test_the_tests_of_programs_are_missed_where_there_are_programs(
    tmp_path, nothing_downloaded, names, needs, given
):
    """An open campaign may have an accuracy dataset of its own."""
    rows = pq.read_table(SAMPLES / "r1_sample.parquet")
    pq.write_table(rows.filter(pc.match_substring_regex(rows["dataset"], names)), tmp_path / "acc.parquet")
    (tmp_path / "lcb").mkdir()
    table = 'submitter = "Org"\nsystem_id = "box"\ndivision = "open"\n[benchmarks.deepseek-r1]\n'
    table += "accuracy = 'acc.parquet'\n" + "lcb_data = 'lcb'\n" * given
    (tmp_path / "my.toml").write_text(f"{table}offline = {{ target_qps = 9.0 }}\n")
    missed = [line for line in missing_files(read_campaign(tmp_path / "my.toml")) if "lcb_data" in line]
    assert len(missed) == needs


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(("benchmark", "needs"), [("gpt-oss-120b", False), ("deepseek-r1", True)])
def test_a_folder_of_programs_without_the_file_that_counts_is_missed(
    tmp_path, nothing_downloaded, benchmark, needs, given
):
    """As an interrupted download leaves it; of gpt-oss-120b all files of the folder count."""
    folder = tmp_path / "livecodebench"
    folder.mkdir()
    shutil.copy(SAMPLES / "code_sample.jsonl", folder / "test2.jsonl")
    table = f'submitter = "Org"\nsystem_id = "box"\n[benchmarks."{benchmark}"]\naccuracy = "acc"\n'
    table += "lcb_data = 'livecodebench'\n" if given else ""
    (tmp_path / "my.toml").write_text(table + "offline = { target_qps = 9.0 }\n")
    missed = [line for line in missing_files(read_campaign(tmp_path / "my.toml")) if "test.jsonl" in line]
    assert [line.startswith(f"{folder}: expected test.jsonl") for line in missed] == [True] * needs


def test_a_file_that_is_not_there_is_named_with_its_table(tmp_path):
    """As it stands in the file: a name with a dot in quotation marks."""
    named = dict.fromkeys(("performance", "accuracy", "user_conf"), "nowhere")
    tokenizer = SAMPLES / "cnn_sample_tokenizer.json"
    (tmp_path / "my.toml").write_text(
        'submitter = "Org"\nsystem_id = "box"\n[benchmarks."llama3.1-8b"]\n'
        + "".join(f"{key} = '{value}'\n" for key, value in (named | {"tokenizer": tokenizer}).items())
        + "offline = { target_qps = 9.0 }\n"
    )
    missed = list(missing_files(read_campaign(tmp_path / "my.toml")))
    assert [text.startswith('[benchmarks."llama3.1-8b"]') for text in missed] == [True] * len(named)


@pytest.mark.parametrize(
    ("tokenizer", "missed"),
    [
        (None, "no tokenizer.json of meta-llama/Llama-3.1-8B-Instruct in"),
        ("nothere", "--tokenizer nothere: no such file or folder"),
        (SAMPLES / "r1_sample_tokenizer.json", "token 128000 is None"),
        (SAMPLES / "cnn_sample_tokenizer.json", None),
    ],
)
def test_the_tokenizer_of_the_score_is_opened_before_runs_of_hours(tmp_path, monkeypatch, tokenizer, missed):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    data = shutil.copy(SAMPLES / "cnn_sample.json", tmp_path / "cnn.json")
    (tmp_path / "my.toml").write_text(
        'submitter = "Org"\nsystem_id = "box"\n[benchmarks."llama3.1-8b"]\n'
        + "".join(f"{role} = '{data}'\n" for role in ("performance", "accuracy"))
        + (f"tokenizer = '{tokenizer}'\n" if tokenizer else "")
        + "offline = { target_qps = 9.0 }\n"
    )
    found = list(missing_files(read_campaign(tmp_path / "my.toml")))
    assert len(found) == (missed is not None)
    assert all(missed in text and "tokenizer = FOLDER" in text for text in found)


@pytest.mark.parametrize("benchmark", ["deepseek-r1", "llama3.1-8b", "gpt-oss-120b"])
@pytest.mark.parametrize("flags", [[], ["--tokenizer", "own"], ["--tokenizer=own"]])
def test_runs_encode_their_texts_with_the_tokenizer_of_the_score(tmp_path, benchmark, flags):
    """They stopped at the first answer of text, and asked for the tokenizer that the file names."""
    (tmp_path / "data").touch()
    (tmp_path / "tok").mkdir()
    (tmp_path / "my.toml").write_text(
        f'submitter = "Org"\nsystem_id = "box"\n[benchmarks."{benchmark}"]\n'
        + "".join(f"{role} = 'data'\n" for role in ("performance", "accuracy", "compliance"))
        + f"tokenizer = 'tok'\nflags = {flags}\noffline = {{ target_qps = 'search' }}\n"
    )
    runs = [step for step in steps_of(read_campaign(tmp_path / "my.toml")) if step.plan is not None]
    assert {step.kind for step in runs} == {"trial", "search", "performance", "accuracy", "test"}
    built_in = None if benchmark == "gpt-oss-120b" else str(tmp_path / "tok")
    assert {step.plan.client.tokenizer for step in runs} == {"own" if flags else built_in}


@pytest.mark.parametrize("flags", [["--generation-config", "gen.json"], ["--generation_config=gen.json"]])
def test_files_in_flags_are_those_of_the_files_folder(tmp_path, monkeypatch, flags):
    """The steps are planned in the user's folder, where a file may have the same name."""
    (tmp_path / "elsewhere").mkdir()
    for folder, tokens in ((tmp_path, 64), (tmp_path / "elsewhere", 65)):
        (folder / "gen.json").write_text(f'{{"max_new_tokens": {tokens}}}')
    monkeypatch.chdir(tmp_path / "elsewhere")
    steps = steps_of(campaign_of(tmp_path, f"flags = {flags}\noffline = {{ target_qps = 9.0 }}\n"))
    runs = [one for one in steps if one.plan is not None]
    assert [one.plan.client.parameters.max_new_tokens for one in runs] == [64] * len(runs)
    assert all(str(tmp_path / "gen.json") in " ".join(one.words) for one in runs)


VALID = RunVerdict("VALID", (), complete=True)


def run_as_asked(step, folder, verdict=VALID, **more):
    """Write the record of a run of the step's plan, dataset and servers, and its logs."""
    settled = structs.replace(ENDED.settled, dataset_sha256=sha256_of(step.plan.client.input_file))
    provenance = structs.replace(ENDED.provenance, server_command=step.servers.command)
    record = structs.replace(ENDED, plan=step.plan, settled=settled, provenance=provenance)
    folder.mkdir(parents=True, exist_ok=True)
    structs.replace(record, **{"verdict": verdict, "deviations": (), **more}).write(folder / RUN_RECORD)
    write_logs(folder)


@pytest.mark.parametrize(
    ("name", "text", "state"),
    [
        ("verify_output_len.txt", "TEST PASS\n", "done"),
        ("verify_output_len.txt", "TEST FAIL\n", "lost"),
        ("verify_output_len.NOT_OFFICIAL.txt", "NOT OFFICIAL PASS\n", "lost"),
        ("verify_output_len.txt", "", "incomplete"),
    ],
)
def test_only_an_official_pass_of_a_test_counts(tmp_path, name, text, state):
    campaign = campaign_of(tmp_path, "offline = { target_qps = 9.0 }\n")
    (step,) = [one for one in steps_of(campaign) if one.test == "TEST09"]
    run_as_asked(step, step.folder / COMPLIANCE_RUN)
    write_logs(step.folder / PERFORMANCE, step.folder / ACCURACY)
    (step.folder / name).write_text(f"Mean output tokens: 1300\n{text}")
    assert standing(campaign, step).state == state
    moved = campaign_of(tmp_path, "servers.url = 'http://b:1'\noffline = { target_qps = 9.0 }\n")
    (there,) = [one for one in steps_of(moved) if one.test == "TEST09"]
    assert standing(moved, there).text.endswith(", url is now http://b:1") == (state != "incomplete")
    other = structs.replace(ENDED.settled, dataset_sha256="0" * 64)
    run_as_asked(step, step.folder / COMPLIANCE_RUN, settled=other)
    assert standing(campaign, step).state == "other"


@pytest.mark.parametrize("kind", ["build", "check"])
def test_a_folder_is_built_and_checked_again_where_it_was_made_of_something_else(tmp_path, kind):
    campaign, step = campaign_with(tmp_path, kind, "offline = { target_qps = 9.0 }\n")
    (performance,) = [one for one in steps_of(campaign) if one.kind == "performance"]

    def made():
        write_made(campaign, step, "with issues, see the check")
        return standing(campaign, step)

    assert standing(campaign, step).state == "missing"
    campaign.output.mkdir()
    campaign.folder.mkdir(parents=True)
    assert standing(campaign, step).state == "missing"
    text = str(campaign.output) if kind == "build" else "with issues, see the check"
    assert made() == Standing("done", text)
    run_as_asked(performance, performance.folder)
    assert standing(campaign, step).state == "missing"
    assert made().state == "done"
    (campaign.output / "edited").touch()
    assert standing(campaign, step).state == ("done" if kind == "build" else "missing")


def test_a_score_is_made_again_for_its_own_run_and_references_alone(tmp_path):
    """A corrected description of the system and other runs change no score; they change the folder."""
    table = "offline = { target_qps = 9.0 }\n"
    campaign = campaign_of(tmp_path, table)
    steps = {one.kind: one for one in steps_of(campaign)}
    scored, accuracy, performance = (steps[kind] for kind in ("score", "accuracy", "performance"))
    run_as_asked(accuracy, accuracy.folder)
    score(scored.folder)
    (scored.folder / ACCURACY_TEXT).write_text("'exact_match': 83.2\n")
    campaign.folder.mkdir(parents=True)
    write_made(campaign, scored, "")
    assert standings(campaign, steps_of(campaign))[scored.name].state == "done"
    write_made(campaign, steps["build"], "")
    campaign.output.mkdir()
    run_as_asked(performance, performance.folder)
    corrected = campaign_of(tmp_path, table + "[system]\nsw_notes = 'corrected'\n")
    assert standing(corrected, scored) == Standing("done", "exact_match 83.2000")
    assert standing(corrected, steps["build"]).state == "missing"
    (scored.folder / ACCURACY_TEXT).write_text("'exact_match': 84.0\n")
    assert standing(corrected, scored).state == "other"


def test_a_folder_that_holds_the_logs_of_other_runs_is_built_again(tmp_path):
    """As after a build by hand of other results: the campaign's table and its check had different figures."""
    table = "[benchmarks.deepseek-r1.offline]\ntarget_qps = 1.0\n[benchmarks.deepseek-r1.server]\n"
    campaign = campaign_of(tmp_path, f"offline = {{ target_qps = 9.0 }}\n{table}")
    campaign.folder.mkdir(parents=True)
    steps = {one.name: one for one in steps_of(campaign)}
    for name in ("gpt-oss-120b", "deepseek-r1"):  # one build each, as their scenarios differ
        tree = campaign.output / "closed/Org/results/box" / name / "Offline" / PERFORMANCE
        write_logs(tree)
        write_made(campaign, steps[f"{name}/build"], "")

    def states():
        return [standing(campaign, steps[f"{name}/build"]).state for name in ("gpt-oss-120b", "deepseek-r1")]

    assert states() == ["done", "done"]
    (tree / SUMMARY).write_text("of another run")
    assert states() == ["done", "missing"]


def test_what_is_made_again_is_said_once(tmp_path):
    """Each reason stood in the row of its step, and again in a line below the table."""
    campaign = campaign_of(tmp_path, "offline = { target_qps = 9.0 }\n")
    runs = {one.kind: one for one in steps_of(campaign) if one.kind in ("performance", "accuracy")}
    for step in runs.values():
        run_as_asked(step, step.folder, provenance=ENDED.provenance)
    changed = campaign_of(tmp_path, "servers = { command = 'go' }\noffline = { target_qps = 9.0 }\n")
    found = {one.name: standing(changed, one) for one in steps_of(changed) if one.kind in runs}
    assert {one.text for one in found.values()} == {"made with server command none, now go"}
    assert list(reasons(CampaignState((), found))) == [
        f"results that are moved aside, and made again: {', '.join(found)}"
    ]
    first, second = found
    running = next(reasons(CampaignState((), found, running=first)))
    assert second in running and first not in running


def test_the_trial_of_one_server_command_leaves_that_of_another(tmp_path):
    """Else a campaign that is done would start both servers again, each time it is called."""
    scenarios = "".join(
        f"{name} = {{ target_qps = 9.0, servers.command = 'serve --for {name}' }}\n"
        for name in ("offline", "server")
    )
    campaign = campaign_of(tmp_path, scenarios)
    trials = [one for one in steps_of(campaign) if one.kind == "trial"]
    for step in trials:
        run_as_asked(step, step.folder)
    assert [standing(campaign, step).state for step in trials] == ["done", "done"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda text: text, ""),
        (lambda text: text.replace("serve'", "serve --dp 2'"), "server command serve, now serve --dp 2"),
        (lambda text: text.replace("flags = []", "flags = ['--max-new-tokens', '64']"), "max_new_tokens"),
        (lambda text: text.replace("'performance'", "'accuracy'"), "dataset_sha256"),
    ],
)
def test_a_rate_of_other_settings_is_searched_again(tmp_path, change, named):
    campaign = campaign_of(
        tmp_path, "flags = []\noffline = { target_qps = 'search', servers.command = 'serve' }\n"
    )
    (tmp_path / "accuracy").write_text("other")
    step = next(one for one in steps_of(campaign) if one.kind == "search")
    run_as_asked(step, step.folder / SHORT_RUN / "offline/performance")
    write_offline_rate(step.folder, OfflineRate(9.0, 6396, 700.0, 600.0, 9.0, 9.0, 64))
    campaign.file.write_text(change(campaign.file.read_text()))
    campaign = read_campaign(campaign.file)
    step = next(one for one in steps_of(campaign) if one.kind == "search")
    found = standing(campaign, step)
    assert (found.state, named in found.text) == ("other" if named else "done", True)
    # The rate goes with its run when that is moved aside: a search that is killed then has none.
    withdraw_offline_rate(step.folder)
    run_as_asked(step, step.folder / SHORT_RUN / "offline/performance")
    assert standing(campaign, step).state == "missing"


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ("", ""),
        ("*.{}.target_qps = 7", ""),  # of a rate that is searched
        ("*.{}.min_duration = 600001", "min_duration"),
        ("gpt-oss-120b.{}.min_query_count = 9999", "min_query_count"),
    ],
)
@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_a_rate_of_another_conf_is_searched_again(tmp_path, row, named, scenario):
    """The search's own rows stand behind the user's, in the form that a run of a search keeps.

    The user's file may be a copy of one that a search of Server kept.
    """
    conf = tmp_path / "my.conf"
    own = with_rows("*.*.min_query_count = 99\n", FOUND_RATE, ["*.Server.target_qps = 3"])
    conf.write_text(f"{own}*.{scenario}.min_duration = 700000\n")
    campaign = campaign_of(
        tmp_path, f"user_conf = 'my.conf'\n{scenario.lower()} = {{ target_qps = 'search' }}\n"
    )
    step = next(one for one in steps_of(campaign) if one.kind == "search")
    if scenario == "Offline":
        run = step.folder / SHORT_RUN / "offline/performance"
        comment, rows = SHORT_CONF, ["*.Offline.min_duration = 1", "*.Offline.min_query_count = 64"]
    else:
        run = step.folder / "search/run-01/server/performance"
        comment, rows = FOUND_RATE, ["gpt-oss-120b.Server.target_qps = 5"]
    run_as_asked(step, run)
    (run / USER_CONF).write_text(with_rows(conf.read_text(), comment, rows))
    conf.write_text(f"{conf.read_text()}{row.format(scenario)}\n")
    step = next(one for one in steps_of(campaign) if one.kind == "search")
    found = standing(campaign, step)
    assert (found.state == "other", named in found.text) == (bool(named), True), found


@pytest.mark.parametrize("texts", [True, False])
def test_a_run_whose_texts_another_tokenizer_encoded_is_made_again(tmp_path, texts):
    """Where answers have ids, a tokenizer changes nothing."""
    file = tmp_path / "tokenizer.json"
    file.write_text("one")
    encoded = EncodedAnswers(tokenizer=str(file), tokenizer_sha256=sha256_of(file)) if texts else None
    table = "flags = ['--tokenizer', 'tokenizer.json']\noffline = { target_qps = 9.0 }\n"
    campaign, step = campaign_with(tmp_path, "performance", table)
    run_as_asked(step, step.folder, encoded=encoded)
    assert standing(campaign, step).state == "done"
    file.write_text("another")
    found = standing(campaign, step)
    assert (found.state, "tokenizer_sha256" in found.text) == (("other", True) if texts else ("done", False))


@pytest.mark.parametrize(("kind", "state"), [("performance", "other"), ("accuracy", "done")])
def test_answers_do_not_depend_on_the_number_in_flight(tmp_path, kind, state):
    text = "flags = ['--max-concurrency', '{}']\noffline = {{ target_qps = 9.0 }}\n"
    step = next(one for one in steps_of(campaign_of(tmp_path, text.format(32))) if one.kind == kind)
    run_as_asked(step, step.folder)
    campaign, step = campaign_with(tmp_path, kind, text.format(64))
    found = standing(campaign, step)
    assert (found.state, "max_concurrency 32, now 64" in found.text) == (state, state == "other"), found


@pytest.mark.parametrize(("state", "flags"), [("other", ("--restart",)), ("incomplete", ())])
def test_a_search_of_other_settings_begins_anew(tmp_path, state, flags):
    """Of servers that answer as before, it would say that it is complete, whatever started them."""
    _, step = campaign_with(tmp_path, "search", "server = { target_qps = 'search' }\n")
    assert _restarts(step, Standing(state), {}) == flags


@pytest.mark.parametrize(
    ("before", "now"), [("as committed", "later"), ("as it ran", "later"), ("as it ran", "a commit")]
)
def test_the_command_for_another_commit_restores_the_code_of_the_runs(tmp_path, before, now):
    """With local changes "git checkout" alone left them, and the campaign stopped again."""
    (file := tmp_path / "run.py").write_text("as committed")
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    file.write_text(before)
    runs = git_state(tmp_path)
    file.write_text(now)
    if now == "a commit":
        commit(tmp_path)
    (text,) = _other_commit(tmp_path, "offline/accuracy", runs, git_state(tmp_path))
    subprocess.run(text.rpartition(": ")[2], shell=True, check=True, cwd=tmp_path, capture_output=True)
    assert git_state(tmp_path) == runs
    assert not list(_other_commit(tmp_path, "offline/accuracy", runs, git_state(tmp_path)))


@pytest.mark.parametrize("stored", [True, False])
def test_local_changes_that_git_does_not_have_here_are_no_command(tmp_path, stored):
    """In a clone the command ended with "fatal: bad object", at the commit without the changes."""
    (made := tmp_path / "made").mkdir()
    git(made, "init", "-q")
    for content in ("as committed", "as it ran"):
        (made / "run.py").write_text(content)
        if content == "as committed":
            commit(made)
    runs = git_state(made)
    git(tmp_path, "clone", "-q", made.as_uri(), "clone")
    clone = tmp_path / "clone"
    before = runs if stored else structs.replace(runs, tree=None)
    (text,) = _other_commit(clone, "offline/accuracy", before, git_state(clone))
    assert ": continue in the checkout that made it; " in text


@pytest.mark.parametrize("anew", [True, False])
def test_a_run_is_told_which_runs_of_its_scenario_are_done(tmp_path, anew):
    """It refuses other servers than theirs; those that are made again do not count. Results may be moved."""
    (before := tmp_path / "before").mkdir()
    campaign = campaign_of(before, "server = { target_qps = 9.0 }\noffline = { target_qps = 9.0 }\n")
    done = [f"gpt-oss-120b/{name}/performance" for name in ("server", "offline")]
    for step in steps_of(campaign):
        if step.name in done:
            run_as_asked(step, step.folder)
    campaign = read_campaign(before.rename(tmp_path / "now") / "my.toml")
    steps = {step.name: step for step in steps_of(campaign)}
    named = dict.fromkeys(done, Standing("done")) if anew else {}
    walk = walk_of(campaign, named)
    found = walk._environment(steps["gpt-oss-120b/server/accuracy"])[BESIDE]
    assert found == ("" if anew else str(steps[done[0]].folder))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://b[1-20]:1", "of http://a[1-20]:1, url is now http://b[1-20]:1"),
        ("b[1-20]:1", "of http://a[1-20]:1, url is now http://b[1-20]:1"),
        ("http://a[1-20]:1", ""),
        ("http://a[11-20]:1,a[1-10]:1/", ""),  # in another order
        ("slurm:b[1-20]:1", ""),  # whose addresses are those of a job
        ("slurm:10.0.0.[1-20]:1", ""),
    ],
)
def test_other_addresses_than_those_of_the_runs_are_named(tmp_path, url, said):
    text = "servers.url = '{}'\nserver = {{ target_qps = 9.0 }}\n"
    steps = steps_of(campaign_of(tmp_path, text.format("http://a[1-20]:1")))
    trial, run = (next(one for one in steps if one.kind == kind) for kind in ("trial", "performance"))
    for one in (trial, run):
        run_as_asked(one, one.folder)
    campaign = campaign_of(tmp_path, text.format(url))
    steps = steps_of(campaign)
    step = next(one for one in steps if one.kind == "accuracy")
    found = other_origins(campaign, step, steps, lambda one: standing(campaign, one))
    assert [text for text in found if "url is now" in text] == (
        [f"{run.name} is {said}: write the earlier one"] if said else []
    )
    # All may be done: a run may be another system's then, and nothing else says so. A trial is Offline.
    for one in (one for one in steps if one.name in (trial.name, run.name)):
        state, text = (done := standing(campaign, one)).state, done.text
        assert state == "done" and text.endswith(f"tokens/s{said and ', '}{said}")


@pytest.mark.parametrize("more", [{"status": True}, {"dry_run": True}, {}])
def test_runs_in_the_name_of_another_system_are_named_before_the_first_run(
    tmp_path, monkeypatch, capsys, more
):
    """The file was copied for another system, and `results` with it; a run that is made again is its own.

    One that was refused, as where no server answers, has left no run.
    """
    campaign = campaign_of(tmp_path, "offline = { target_qps = 9.0 }\n")
    monkeypatch.setattr(campaign_command, "require_complete", lambda campaign: None)

    def one_step(walk):
        state = "missing" if walk.campaign.info.system_id == "typo" else "done"
        walk.journal.write(event="ended", step="gpt-oss-120b/offline/performance", state=state)
        return 0

    monkeypatch.setattr(_Walk, "run", one_step)

    def said(system, **more):
        text = campaign.file.read_text().replace('"box"', f'"{system}"')
        (copy := tmp_path / f"{system}.toml").write_text(text)
        assert campaign_command.run(CampaignOptions(file=copy, **more)) == 0
        return capsys.readouterr().out

    box = f"{campaign.results} has runs of box, which count as those of crate, the system_id now: "
    assert "has runs of" not in said("typo") + said("box") + said("box")
    assert box in said("crate", **more)
    if not more:
        assert "has runs of" not in said("crate")


@pytest.mark.parametrize(("kind", "state"), [("performance", "lost"), ("trial", "failed")])
def test_a_damaged_record_is_made_again_by_itself_only_where_that_takes_minutes(tmp_path, kind, state):
    campaign, step = campaign_with(tmp_path, kind, "servers.command = 'a'\nserver = { target_qps = 9.0 }\n")
    step.run_folder.mkdir(parents=True)
    (step.run_folder / RUN_RECORD).write_text("{")
    found = standing(campaign, step)
    assert found.state == state and str(step.run_folder / RUN_RECORD) in found.text


def test_answers_without_their_record_are_lost_before_the_run_refuses_them(tmp_path):
    """It said "add --restart", which a campaign wants with the name of the step."""
    campaign, step = campaign_with(tmp_path, "accuracy")
    (step.folder / JOURNAL_DIR).mkdir(parents=True)
    assert standing(campaign, step) == Standing("missing")
    (step.folder / JOURNAL_DIR / "answers-0.bin").write_bytes(encode_answer(3, 1, b"\7\0\0\0"))
    found = standing(campaign, step)
    assert found.state == "lost" and "1 answer and no run.json" in found.text
    *_, again = advice(campaign, step, found)
    assert again.endswith(f" campaign {campaign.file} --restart {step.name}")


@pytest.mark.parametrize(
    ("kind", "log", "state"),
    [
        ("performance", DETAIL, "lost"),
        ("performance", SUMMARY, "lost"),
        ("accuracy", ACCURACY_LOG, "incomplete"),
        ("accuracy", DETAIL, "incomplete"),
        ("test", f"{PERFORMANCE}/{SUMMARY}", "incomplete"),
        ("test", f"{ACCURACY}/{ACCURACY_LOG}", "incomplete"),
    ],
)
def test_a_log_that_was_cut_since_is_seen_before_the_build_stops_at_it(tmp_path, kind, log, state):
    """By a full disk or a copy. Answers are kept, and a test is verified again."""
    campaign, step = campaign_with(tmp_path, kind)
    run_as_asked(step, step.run_folder)
    if kind == "test":
        write_logs(step.folder / PERFORMANCE, step.folder / ACCURACY)
        text = "Accuracy score: 61.0\nMean output tokens: 1300\nTEST PASS\n"
        (step.folder / TESTS[step.test].verify_file).write_text(text)
    assert standing(campaign, step).state == "done"
    path = step.folder / log
    path.write_bytes(path.read_bytes()[:-40])
    found = standing(campaign, step)
    assert found.state == state and f"{path.name} is cut short" in found.text


def test_the_log_of_another_run_is_written_again_before_it_is_scored(tmp_path):
    campaign, step = campaign_with(tmp_path, "accuracy")
    run_as_asked(step, step.run_folder)
    record, path = newest_run(step.run_folder), step.run_folder / ACCURACY_LOG
    structs.replace(record, accuracy_log_sha256=sha256_of(path)).write(step.run_folder / "run.json")
    assert standing(campaign, step).state == "done"
    path.write_text(path.read_text().replace("07000000", "08000000"))
    found = standing(campaign, step)
    assert found.state == "incomplete" and "is not the log of the run in the run.json beside it" in found.text


@pytest.mark.parametrize("anew", [True, False])
def test_the_check_of_a_run_that_begins_anew_asks_nothing_of_its_earlier_answers(tmp_path, monkeypatch, anew):
    """Answers of another model were refused, with "add --restart", which had been given."""
    campaign, step = campaign_with(tmp_path, "accuracy")
    calls = []
    monkeypatch.setattr(_Walk, "_call", lambda self, step, more, quiet: calls.append("--restart" in more))
    named = {step.name: Standing("incomplete")} if anew else {}
    walk = walk_of(campaign, named)
    assert not walk._check_first(step, [step], set())
    assert calls == [anew]


@pytest.mark.parametrize(
    ("before", "now", "kept"),
    [
        ("done", "done", True),
        ("incomplete", "incomplete", True),  # ended before its run began: while servers load their model
        ("done", "incomplete", False),
        ("missing", "missing", False),
    ],
)
def test_the_command_that_continues_keeps_what_is_to_begin_anew(tmp_path, monkeypatch, before, now, kept):
    """The answers of an accuracy run that was cut off counted where the campaign was ended before it."""
    campaign, step = campaign_with(tmp_path, "accuracy")
    stands = [Standing(before), Standing(now)]
    monkeypatch.setattr(campaign_command, "standing", lambda campaign, step: stands.pop(0))
    anew = _named(campaign, [step.name])
    walk = walk_of(campaign, anew)
    assert walk._again().endswith(f" --restart {step.name}") is kept


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("kill -9 $$", "was killed by SIGKILL, as the kernel does where memory is short (see dmesg)"),
        ("kill -11 $$", "was ended by SIGSEGV"),
        ("kill -40 $$", "was ended by signal 40"),
        ("exit 3", "ended with exit code 3"),
    ],
)
def test_what_ended_a_step_has_its_name(tmp_path, capsys, command, named):
    campaign, step = campaign_with(tmp_path, "performance")
    walk = walk_of(campaign)
    walk._ended(step, walk._watch(subprocess.Popen(["sh", "-c", command]), None))
    assert f"The campaign stops at {step.name}, which {named}." in capsys.readouterr().err


def test_the_page_has_the_runs_of_the_campaign_without_those_of_searches(tmp_path):
    campaign, step = campaign_with(tmp_path, "performance", "offline = { target_qps = 9.0 }\n")
    run_as_asked(step, step.folder)
    search = search_folder(step.folder.parent) / SHORT_RUN / "offline/performance"
    run_as_asked(step, search, RunVerdict("INVALID", ("too slow",)))
    write_campaign_page(campaign, CampaignState((), {}), ())
    page = (campaign.results / campaign_command.PAGE).read_text()
    assert "74.75 tokens/s" in page and "too slow" not in page


def test_a_campaign_goes_on_without_its_page(tmp_path, monkeypatch, capsys, caplog):
    """In a folder that takes no file, or by a defect of ours: the runs are what counts."""
    campaign = campaign_of(tmp_path, "server = { target_qps = 9.0 }\n")
    walk = walk_of(campaign)
    page = campaign.results / campaign_command.PAGE
    page.mkdir(parents=True)
    walk._page()
    assert capsys.readouterr().err == f"{campaign_command.PAGE} cannot be written: Is a directory\n"
    monkeypatch.setattr(campaign_command, "write_campaign_page", lambda *_: {}["new"])
    walk._page()
    assert caplog.messages[-1].endswith(f": no {campaign_command.PAGE}")


def test_a_build_without_git_is_announced_before_the_first_run(tmp_path, monkeypatch, capsys):
    """It is no refusal: these runs can be built in a checkout later."""
    campaign = campaign_of(tmp_path, "offline = { target_qps = 9.0 }\n")
    monkeypatch.setattr(campaign_command, "require_complete", lambda campaign: None)
    monkeypatch.setattr(_Walk, "run", lambda walk: print("the first run") or 0)
    ways = [CampaignOptions(file=campaign.file, **one) for one in ({"status": True}, {"dry_run": True}, {})]
    for options in ways:
        assert campaign_command.run(options) == 0
    assert "git" not in capsys.readouterr().out.replace(str(tmp_path), "")
    monkeypatch.setattr(source_code, "ROOT", tmp_path)
    for options in ways:
        assert campaign_command.run(options) == 0
        said, _, after = capsys.readouterr().out.partition("the first run")
        assert (
            f"The build will stop: src/ holds the files that git tracks, and {tmp_path} is no checkout in"
            in said
        )
        assert not after.strip()
    campaign.output.mkdir()  # it was built elsewhere
    campaign_command.run(ways[0])
    assert "The build will stop" not in capsys.readouterr().out


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_description_that_lacks_a_field_is_refused_before_the_first_run(tmp_path, capsys, dry_run):
    """A dry run in the evening said nothing, and the job of the night ended in its first second."""
    _, _, facts = write_info(tmp_path, without=["cooling"]).read_text().split("\n", 2)
    campaign = campaign_of(tmp_path, "offline = { target_qps = 9.0 }\n", facts)
    with pytest.raises(ConfigError, match=r"could not be built: empty: cooling; write these into \[system\]"):
        campaign_command.run(CampaignOptions(file=campaign.file, dry_run=dry_run))
    assert ("/TEST09: " in capsys.readouterr().out) == dry_run


@pytest.mark.parametrize(
    ("benchmark", "system_type", "division", "said"),
    [
        ("llama3.1-8b-edge", "datacenter", "closed", "is a benchmark of edge systems"),
        ("llama3.1-8b-edge", "edge", "closed", ""),
        ("llama3.1-8b-edge", "datacenter,edge", "closed", ""),
        ("llama3.1-8b-edge", "datacenter", "open", ""),
        ("llama3.1-8b", "edge", "closed", "is a benchmark of datacenter systems"),
    ],
)
def test_a_system_of_the_other_type_is_refused_before_the_first_run(
    tmp_path, benchmark, system_type, division, said
):
    """The build refused it, after all runs; the example's system is of a datacenter."""
    _, _, facts = write_info(tmp_path, system_type=system_type).read_text().split("\n", 2)
    (tmp_path / "my.toml").write_text(
        f"submitter = 'Org'\nsystem_id = 'box'\ndivision = '{division}'\n{facts}"
        f'[benchmarks."{benchmark}".offline]\ntarget_qps = 9.0\n'
    )
    campaign = read_campaign(tmp_path / "my.toml")
    if not said:
        require_complete(campaign)
        return
    with pytest.raises(ConfigError, match=f"built: system_type is '{system_type}', and .* {said};"):
        require_complete(campaign)


NEEDS = "gpt-oss-120b has no Server or Interactive, which a closed result needs: add its table"
MUST_NOT = "gpt-oss-120b has SingleStream, which no closed result may have"


@pytest.mark.parametrize(
    ("scenarios", "division", "said"),
    [
        (("offline",), "closed", (NEEDS,)),
        (("offline", "single-stream"), "closed", (NEEDS, MUST_NOT)),
        (("offline", "interactive"), "closed", ()),
        (("offline",), "open", ()),
    ],
)
def test_scenarios_that_the_check_would_refuse_are_named_before_the_first_run(
    tmp_path, monkeypatch, capsys, scenarios, division, said
):
    """The check said so after all runs, and its remedy was GPU hours."""
    tables = "".join(f"[benchmarks.gpt-oss-120b.{scenario}]\n" for scenario in scenarios)
    campaign = campaign_of(tmp_path, tables, f"division = '{division}'\n")
    monkeypatch.setattr(campaign_command, "require_complete", lambda campaign: None)
    monkeypatch.setattr(_Walk, "run", lambda walk: print("the first run") or 0)
    assert campaign_command.run(CampaignOptions(file=campaign.file)) == 0
    before, _, _ = capsys.readouterr().out.partition("the first run")
    assert [text in before for text in (NEEDS, MUST_NOT)] == [text in said for text in (NEEDS, MUST_NOT)]


@pytest.mark.parametrize("more", [{"status": True}, {}])
def test_other_data_than_the_published_is_named_before_the_first_run(tmp_path, monkeypatch, capsys, more):
    """The rows of these files may be as many as the official ones': that is all that a run compares."""
    campaign = campaign_of(tmp_path, "offline = { target_qps = 9.0 }\n")
    monkeypatch.setattr(campaign_command, "require_complete", lambda campaign: None)
    monkeypatch.setattr(_Walk, "run", lambda walk: print("the first run") or 0)
    assert campaign_command.run(CampaignOptions(file=campaign.file, **more)) == 0
    said, _, _ = capsys.readouterr().out.partition("the first run")
    for role, file in (("performance", "perf/perf_eval_ref"), ("accuracy", "acc/acc_eval_ref")):
        assert f"{tmp_path / role} is not the published {file}.parquet (md5 d41d8cd98f00b204" in said
    rehearsed = campaign_command.run(CampaignOptions(file=campaign.file, rehearsal=True, **more))
    assert rehearsed == 0
    assert "published" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("benchmark", "published"),
    [
        ("deepseek-r1", ["mlperf_deepseek_r1_dataset_4388_fp8_eval.pkl"]),
        ("gpt-oss-120b", ["perf/perf_eval_ref.parquet", "acc/acc_eval_ref.parquet"]),
    ],
)
def test_one_file_of_two_roles_is_named_once_for_each_that_it_should_be(tmp_path, benchmark, published):
    """Of deepseek-r1 both are one."""
    (tmp_path / "data").touch()
    (tmp_path / "my.toml").write_text(
        FILE.replace("gpt-oss-120b.offline", benchmark) + "performance = 'data'\naccuracy = 'data'\n"
        "offline = { target_qps = 9.0 }\n"
    )
    others = list(other_files(read_campaign(tmp_path / "my.toml")))
    named = [f"{tmp_path / 'data'} is not the published {file}" for file in published]
    assert [text.partition(" (md5")[0] for text in others] == named


def test_status_says_before_which_run_a_campaign_would_stop(tmp_path, monkeypatch, capsys):
    """It said that the accuracy run continues, of which the next call then was no part."""
    campaign = campaign_of(tmp_path, "offline = { target_qps = 9.0 }\n")
    steps = {step.kind: step for step in steps_of(campaign)}
    for kind in ("trial", "performance"):
        run_as_asked(steps[kind], steps[kind].folder)
    run_as_asked(steps["accuracy"], steps["accuracy"].folder, RunVerdict("INTERRUPTED"))
    monkeypatch.setattr(campaign_command, "require_complete", lambda campaign: None)
    here, before = git_state(ROOT), ENDED.provenance.git
    assert here is not None and here != before

    def called(**more):
        code = campaign_command.run(CampaignOptions(file=campaign.file, **more))
        return code, capsys.readouterr()

    ways = {"status": True}, {"dry_run": True}
    (_, status), (_, dry_run), (code, begun) = called(**ways[0]), called(**ways[1]), called()
    (stops, anew) = begun.err.splitlines()[-2:]
    assert code == 2 and f"git checkout {before.commit}" in stops
    assert anew.endswith(f" campaign {campaign.file} --restart gpt-oss-120b/offline")
    for said in (status, dry_run, begun):
        (row,) = [line for line in said.out.splitlines() if line.startswith(f"{steps['accuracy'].name} ")]
        assert row.split()[1] == "STOPS" and f"{stops}\n{anew}\n" in said.out + said.err
    assert ">STOPS<" in (campaign.results / campaign_command.PAGE).read_text()
    monkeypatch.setattr("harness.campaign.origins.git_state", lambda root: before)
    assert "STOPS" not in called(**ways[0])[1].out


OPEN_V6_0 = "round = 'v6.0'\ndivision = 'open'\n"


def test_a_round_that_is_over_is_refused_before_the_servers_start(tmp_path, monkeypatch, capsys):
    """They load for minutes, and the run's own line asked to omit a flag that the campaign gives."""
    monkeypatch.setattr(campaign_command, "require_complete", lambda campaign: None)
    text = "servers.command = 'touch started'\noffline = { target_qps = 9.0 }\n"
    old = CampaignOptions(file=campaign_of(tmp_path, text, "round = 'v6.0'\n").file)
    assert campaign_command.run(old) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "stops before gpt-oss-120b/offline/trial" in line and "round v6.0" in line
    assert line.endswith(f'; remove round from {old.file}, or write division = "open" there.')
    assert not (tmp_path / "started").exists()
    for top, stops in (("round = 'v6.0'\n", True), ("round = 'v6.1'\n", False), (OPEN_V6_0, False)):
        campaign_of(tmp_path, text, top)
        assert campaign_command.run(CampaignOptions(file=old.file, status=True)) == 0
        assert ("STOPS" in capsys.readouterr().out) is stops


LINE = (  # of a run against the stub server
    '{"time":"2026-11-27T08:33:13.421710Z","elapsed_s":10.1,"issued":94,"completed":89,"failed":0,'
    '"in_flight":5,"total":384,"remaining_s":30.7,"tokens_per_s":145.1,"failures":{},"ended_last_minute":89,'
    '"ttft":{"p50_ms":0.9,"p99_ms":7.6},"tpot":{"p50_ms":20.9,"p99_ms":22.7},"over_limit":{},"slowest":[],'
    '"imbalance":null,"stragglers":0,"lost":"","standing":"","silent_s":0.0}\n'
)


PROBE_1 = Probe(
    rate=9.0,
    datasets=1,
    queries=6396,
    planned_s=710.0,
    seconds=715.0,
    cost_s=720.0,
    verdict="VALID",
    folder="probe-01/server/performance",
)


@pytest.mark.parametrize(
    ("began", "remaining_s", "shown", "left"),
    [
        ("08:33:00", 30.7, "89 answered after 10s, 30s left", "30s"),
        ("08:33:00", None, "89 answered after 10s", "11m40s"),  # of 6396 queries at 9 a second
        ("08:34:18", 30.7, "began at 08:34:18 UTC", "11m50s"),  # it waits for its servers
    ],
)
def test_the_progress_of_an_earlier_run_is_not_that_of_the_step(tmp_path, began, remaining_s, shown, left):
    _, step = campaign_with(tmp_path, "performance")
    step.folder.mkdir(parents=True)
    line = json.loads(LINE) | {"remaining_s": remaining_s}
    (step.folder / PROGRESS).write_text(json.dumps(line) + "\n")
    since = datetime.fromisoformat(f"2026-11-27T{began}+00:00")
    found = {step.name: Standing("other", "89 of 384 answered")}
    assert rows(CampaignState([step], found, step.name, since))[1][3] == shown
    assert remaining(CampaignState([step], found, step.name, since)).endswith(f"take at least {left}")


def test_the_status_of_a_step_that_runs_has_its_alarms(tmp_path):
    """A run that was lost by a server that stood was ``89 answered after 10s`` for hours."""
    _, step = campaign_with(tmp_path, "performance")
    step.folder.mkdir(parents=True)
    line = json.loads(LINE) | {
        "lost": "2 queries failed",
        "standing": "nothing arrives",
        "warned": 3,
        "warnings": [
            {"elapsed_s": 9.0, "text": "out of use"},
            {"elapsed_s": 9.5, "text": "lost: see its log"},
        ],
    }
    (step.folder / PROGRESS).write_text(json.dumps(line) + "\n")
    state = CampaignState(
        [step], {step.name: Standing("missing", "")}, step.name, datetime(2026, 11, 27, tzinfo=UTC)
    )
    assert rows(state)[1][3] == (
        "89 answered after 10s, 30s left; LOST: 2 queries failed; nothing arrives; "
        "3 warnings, the latest: lost: see its log"
    )


def test_a_search_that_runs_shows_what_it_has_measured_and_its_run(tmp_path):
    """The row of a search of hours was RUNNING and nothing else."""
    campaign, step = campaign_with(tmp_path, "search", "server = { target_qps = 'search' }\n")
    folder = step.folder / "search"
    for number in (1, 2):
        (run := folder / f"probe-0{number}/server/performance").mkdir(parents=True)
        (run / PROGRESS).write_text(LINE)
    since = datetime.fromisoformat("2026-11-27T08:33:00+00:00")
    for runs, shown in ((1, "89 answered after 10s, 30s left"), (2, "began at 08:33:00 UTC")):
        history = History(
            probes=(PROBE_1, structs.replace(PROBE_1, folder="probe-02/server/performance"))[:runs]
        )
        SearchState(identity=IDENTITY, limits_ns={}, tolerance=0.01, history=history).write(folder)
        found = {step.name: standing(campaign, step)}
        measured = f"0 steps and {runs} run{'s' if runs > 1 else ''} are measured"
        assert found[step.name] == Standing("incomplete", measured)
        state = CampaignState([step], found, step.name, since)
        assert rows(state)[1] == (step.name, "RUNNING", "", f"{measured}, {shown}")
        assert remaining(state) == "0 of 1 steps are done"


def test_a_search_whose_state_is_damaged_is_lost_and_may_begin_anew(tmp_path):
    """No step could be named with --restart, as the steps could not be listed."""
    campaign, step = campaign_with(tmp_path, "search", "server = { target_qps = 'search' }\n")
    path = step.folder / "search/search.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    (found,) = _named(campaign, [step.name]).values()
    assert found == Standing("lost", f"restore it or begin anew: {path}: Input data was truncated")


def test_status_counts_what_begins_anew_as_not_done(tmp_path, monkeypatch, capsys):
    """Steps that ``--restart`` names were done, or continued, until their runs had begun."""
    campaign = campaign_of(tmp_path, "offline = { target_qps = 9.0 }\n")
    steps = {step.kind: step for step in steps_of(campaign)}
    for kind in ("trial", "performance", "accuracy"):
        run_as_asked(steps[kind], steps[kind].folder)
    anew = {"restart": ("gpt-oss-120b/offline/",)}
    status, restart, dry_run = (
        CampaignOptions(file=campaign.file, **one)
        for one in ({"status": True}, anew, {"dry_run": True, **anew})
    )

    def walk(self):
        for kind in ("trial", "performance"):
            self.journal.write(event="started", step=steps[kind].name)
        return campaign_command.run(status)

    monkeypatch.setattr(campaign_command, "require_complete", lambda campaign: None)
    monkeypatch.setattr(_Walk, "run", walk)
    shown = []
    for options in (restart, status, dry_run):  # the second when the first has ended
        assert campaign_command.run(options) == 0
        words = [line.split() for line in capsys.readouterr().out.splitlines()]
        states = {line[0]: line[1] for line in words if len(line) > 1}
        shown.append([states[steps[kind].name] for kind in ("trial", "performance", "accuracy")])
    assert shown == [["done", "RUNNING", "next"], ["done"] * 3, ["next"] * 3]
    flagged = [line[0].rpartition("/")[2] for line in words if line[-1:] == ["--restart"]]
    assert flagged == ["accuracy:", "score:", "TEST07:", "TEST09:"]  # the others begin anew by themselves


@pytest.mark.parametrize(
    ("step", "file"),
    [
        ("score", "accuracy/accuracy.txt"),
        ("TEST07", "verify_accuracy.txt"),
        ("TEST09", "verify_output_len.txt"),
    ],
)
def test_a_failed_test_names_the_file_that_has_its_figures(tmp_path, step, file):
    """It named only the flag that makes the same again."""
    campaign = campaign_of(tmp_path, "offline = { target_qps = 9.0 }\n")
    (failed,) = [one for one in steps_of(campaign) if one.name.endswith(f"/{step}")]
    see, again = advice(campaign, failed, Standing("lost", "FAIL"))
    assert see.startswith("See ") and f"{file}: the model, its quantization or its parameters" in see
    assert again.endswith(f"--restart gpt-oss-120b/offline/{step}")


def test_the_time_that_is_left_says_what_it_does_not_count(tmp_path):
    """A night's search and its runs looked like three minutes, those of the test that was left."""
    scenarios = "offline = { target_qps = 38.0 }\nserver = { target_qps = 'search' }\n"
    steps = steps_of(campaign_of(tmp_path, scenarios))
    left = ("TEST09", "server/")
    found = {
        one.name: Standing("missing" if any(name in one.name for name in left) else "done") for one in steps
    }
    said = remaining(CampaignState(steps, found))
    assert said.startswith("7 of 14 steps are done; at the rates asked for the others take at least ")
    # The search, the performance run, accuracy, TEST07 and TEST09 in Server: its rate is not known.
    assert said.endswith(", without 5 whose time is not known")


OVER = "lost: 30 queries over the TTFT limit, at most 1 may be"
(CLOCK,) = by_the_clocks(630, 600)[-1]
SILENCE = RunEvent(at_s=98.0, kind="silence", server="http://a:1", text="nothing arrives from http://a:1")
SILENT = RunEvent(
    at_s=74.2,
    kind="lost",
    server="http://localhost:30101",
    text=f"{OVER}; nothing has arrived from http://localhost:30101 for 14 s",
)
SUSPENDED = RunEvent(at_s=98.0, kind="suspended", text="this process or the machine was suspended for 34.0 s")
CLOCK_SET = RunEvent(at_s=98.0, kind="clock_set", text="the wall clock was stepped")
LATE = RunEvent(at_s=98.0, kind="lost", text=OVER)
DIED = RunEvent(at_s=5.0, kind="server_out", server="http://127.0.0.1:47706", text="died")


@pytest.mark.parametrize(
    ("reason", "failed", "events", "complete", "state"),
    [
        (OVER, 0, (), False, "lost"),
        ("LoadGen reports INVALID: p99 of TTFT", 0, (), True, "lost"),
        ("lost: 3 queries failed (truncated)", 3, (DIED,), False, "failed"),
        ("lost: 3 queries failed (truncated)", 3, (), False, "failed"),
        (OVER, 0, (DIED,), False, "failed"),
        ("LoadGen reports INVALID: p99 of TTFT", 0, (DIED,), True, "failed"),
        (OVER, 0, (SILENT,), False, "failed"),
        (OVER, 0, (SILENCE,), False, "failed"),
        (OVER, 0, (SUSPENDED, LATE), False, "failed"),
        (OVER, 0, (LATE, SUSPENDED), False, "lost"),
        (CLOCK, 0, (), True, "failed"),
        (f"LoadGen reports INVALID: p99 of TTFT; {CLOCK}", 0, (), True, "failed"),
    ],
)
def test_a_run_whose_servers_failed_is_made_again(tmp_path, reason, failed, events, complete, state):
    """Another target_qps is no remedy for a server or client that died or stood, nor for a clock that was
    set: the same command measures it again."""
    campaign, step = campaign_with(tmp_path, "performance")
    verdict = RunVerdict("INVALID", tuple(reason.split("; ")), complete=complete)
    statistics = structs.replace(ENDED.statistics, completed=ENDED.statistics.queries - failed)
    run_as_asked(step, step.folder, verdict, statistics=statistics, events=events)
    found = standing(campaign, step)
    assert found.state == state
    named = next((f"; meanwhile {one.text}" for one in events if one in (SILENCE, SUSPENDED)), "")
    assert found.text == f"{reason}{named}"


@pytest.mark.parametrize(
    ("scenario", "figures", "shown"),
    [
        (
            "server",  # this client had 28.38 samples/s and 36446 tokens/s until its last answer
            {"Completed samples per second": 30.09, "Completed tokens per second": 38646.16},
            "VALID, 30.09 samples/s, 38,646.16 tokens/s",
        ),
        (
            "offline",
            {"Samples per second": 28.0322, "Tokens per second": 35573.4},
            "VALID, 28.03 samples/s, 35,573.4 tokens/s",
        ),
    ],
)
def test_the_rates_of_a_run_are_those_that_are_submitted(tmp_path, scenario, figures, shown):
    campaign, step = campaign_with(tmp_path, "performance", f"{scenario} = {{ target_qps = 9.0 }}\n")
    run_as_asked(step, step.folder, loadgen=structs.replace(ENDED.loadgen, figures=figures))
    assert standing(campaign, step).text == shown


def test_the_rates_of_an_accuracy_run_have_no_exponent(tmp_path):
    """Eight GPUs answer llama3.1-8b with more tokens a second: the table said 1.4601e+05 tokens/s."""
    campaign, step = campaign_with(tmp_path, "accuracy", "offline = { target_qps = 9.0 }\n")
    rates = structs.replace(ENDED.statistics, samples_per_s=1140.72, tokens_per_s=146_012.4)
    run_as_asked(step, step.folder, statistics=rates, loadgen=None)
    assert standing(campaign, step).text == "VALID, 1,141 samples/s, 146,012 tokens/s"
    slow = structs.replace(rates, samples_per_s=5.4254, tokens_per_s=86.8)
    run_as_asked(step, step.folder, statistics=slow, loadgen=None)
    assert standing(campaign, step).text == "VALID, 5.425 samples/s, 86.8 tokens/s"


@pytest.mark.parametrize(
    ("deviations", "text"), [((), "VALID"), (("min_duration is 1",), "VALID, NOT OFFICIAL")]
)
def test_a_run_of_the_open_division_is_marked_as_on_its_page(tmp_path, deviations, text):
    campaign, step = campaign_with(
        tmp_path, "performance", "server = { target_qps = 9.0 }\n", "division = 'open'\n"
    )
    run_as_asked(step, step.folder, deviations=deviations, loadgen=None, statistics=None)
    assert standing(campaign, step) == Standing("done", text, newest_run(step.folder))


@pytest.mark.parametrize(
    ("events", "code"), [((DIED,), EXIT_SERVER), ((SILENCE,), EXIT_SERVER), ((), EXIT_INVALID)]
)
def test_an_outage_ends_a_campaign_with_the_code_of_one_to_be_called_again(
    tmp_path, monkeypatch, events, code
):
    """The Job of docs/guide/campaign is not started again after EXIT_INVALID, which its child ends with."""
    campaign, step = campaign_with(tmp_path, "performance")

    calls = []

    def run(walk, step, more):
        calls.append(step.name)
        verdict = RunVerdict("INVALID", (OVER,), complete=False)
        run_as_asked(step, step.folder, verdict, events=events)
        return EXIT_INVALID

    monkeypatch.setattr(_Walk, "_call", run)
    walk = walk_of(campaign)
    assert walk._do(1, 1, step, Standing("missing")) == code
    assert len(calls) == (2 if events else 1)


@pytest.mark.parametrize(("event", "starts"), [(SILENCE, 2), (SUSPENDED, 1), (CLOCK_SET, 1)])
def test_a_run_that_an_outage_cost_is_made_again_by_itself(tmp_path, monkeypatch, capsys, event, starts):
    """A pause of a server at two o'clock ended the night, and so did a step of the clock."""
    campaign, step = campaign_with(tmp_path, "performance")
    ends = [(RunVerdict("INVALID", (OVER,), complete=True), (event,)), (VALID, ())]
    commands = []

    def run(walk, step, more):
        walk.servers.use(Servers(command="exec sleep 600", url=("slurm:node[1-2]:30000",)))
        commands.append(walk.servers.process)
        verdict, events = ends.pop(0)
        run_as_asked(step, step.folder, verdict, events=events)
        return EXIT_INVALID if events else 0

    monkeypatch.setattr(_Walk, "_call", run)
    walk = walk_of(campaign)
    try:
        assert walk._do(1, 1, step, Standing("missing")) == 0 and not ends
        assert f"{step.name} is tried once more" in capsys.readouterr().out
        # The command of two servers lives on where one of them has died; this client's pause costs no load.
        assert len(set(commands)) == starts and (commands[0].poll() is not None) == (starts == 2)
    finally:
        walk.servers.stop()


@pytest.mark.parametrize("fails", [1, 2])
def test_an_accuracy_run_with_failed_queries_is_continued_once(tmp_path, monkeypatch, capsys, fails):
    """A gateway that answered 502 for a second ended the night of a campaign, for nine answers of hours."""
    campaign, step = campaign_with(tmp_path, "accuracy")
    failed = RunVerdict("INVALID", ("9 of 4395 queries failed: http_status 9",), complete=False)
    verdicts, commands = [failed] * fails + [VALID], []

    def run(walk, step, more):
        walk.servers.use(Servers(command="exec sleep 600", url=("slurm:node[1-2]:30000",)))
        commands.append(walk.servers.process)
        verdict = verdicts.pop(0)
        run_as_asked(step, step.folder, verdict)
        return EXIT_INVALID if verdict is failed else 0

    monkeypatch.setattr(_Walk, "_call", run)
    walk = walk_of(campaign)
    try:
        walk._do(1, 1, step, Standing("missing"))
        assert len(commands) == 2
        said = capsys.readouterr()
        once = (
            f"{step.name} is tried once more, as this may be all that was wrong: 9 of 4395 queries failed: "
        )
        assert once in said.out
        assert (f"The campaign stops at {step.name}" in said.err) == (fails == 2)
        assert commands[0] is commands[1]  # loading a model takes minutes
    finally:
        walk.servers.stop()


@pytest.mark.parametrize(("kind", "calls"), [("accuracy", 2), ("score", 1)])
def test_servers_that_have_died_repeat_the_steps_that_need_them(tmp_path, monkeypatch, kind, calls):
    campaign, step = campaign_with(tmp_path, kind)
    made = []

    def run(walk, step, more):
        made.append(step.name)
        walk.servers.use(Servers(command="exit 9", url=("slurm:node[1-2]:30000",)))
        walk.servers.were_ready = True
        assert walk.servers.process.wait() == 9
        return EXIT_SERVER

    monkeypatch.setattr(_Walk, "_call", run)
    walk = walk_of(campaign)
    assert walk._do(1, 1, step, Standing("missing")) == EXIT_SERVER
    assert len(made) == calls


@pytest.mark.parametrize("scenario", ["server", "offline"])
@pytest.mark.parametrize(
    ("events", "code", "stops"),
    [((DIED,), EXIT_SERVER, 1), ((SUSPENDED,), EXIT_SERVER, 0), ((), EXIT_INVALID, 1)],
)
def test_so_does_an_outage_in_a_search(tmp_path, monkeypatch, scenario, events, code, stops):
    """The search has ended by an error, which its program ends with EXIT_INVALID for, too."""
    campaign, step = campaign_with(tmp_path, "search", f"{scenario} = {{ target_qps = 'search' }}\n")

    calls = []

    def search(walk, step, more):
        calls.append(step.name)
        if scenario == "offline":
            run = step.folder / SHORT_RUN / "offline/performance"
            run_as_asked(step, run, RunVerdict("INVALID", ("1 query failed",)), events=events)
            return EXIT_INVALID
        why = "the ladder with 8 requests in flight: ended early: no server has answered for 10 s"
        found = Conclusion(outcome="ERROR", why=why, events=events)
        state = SearchState(identity=IDENTITY, limits_ns={}, tolerance=0.01, conclusion=found)
        (step.folder / "search").mkdir(parents=True, exist_ok=True)
        state.write(step.folder / "search")
        return EXIT_INVALID

    stopped = []
    monkeypatch.setattr(ServerCommand, "stop", lambda servers: stopped.append(servers))
    monkeypatch.setattr(_Walk, "_call", search)
    walk = walk_of(campaign)
    assert walk._do(1, 1, step, Standing("missing")) == code
    assert len(calls) == 2  # an error shows nothing about the rate: the search is continued once by itself
    assert len(stopped) == stops


@pytest.mark.parametrize(
    ("table", "key", "search"),
    [
        ("server = { target_qps = 9.0 }\n", "target_qps", True),
        ("server = { target_qps = 'search' }\n", "target_qps", False),
        ("single-stream = { target_latency = 100.0 }\n", "target_latency", False),
    ],
)
def test_the_remedy_of_a_lost_run_is_a_key_that_its_table_takes(tmp_path, table, key, search):
    campaign, step = campaign_with(tmp_path, "performance", table)
    run_as_asked(step, step.folder, RunVerdict("INVALID", (OVER,), complete=True))
    remedy, _ = advice(campaign, step, standing(campaign, step))
    assert f"another {key} into" in remedy
    assert ('"search"' in remedy) == search


@pytest.mark.parametrize("kind", ["performance", "accuracy"])
def test_a_run_that_deviates_is_lost_in_the_closed_division_alone(tmp_path, kind):
    for division, state in (("closed", "lost"), ("open", "done")):
        campaign, step = campaign_with(
            tmp_path, kind, "server = { target_qps = 9.0 }\n", f"division = '{division}'\n"
        )
        run_as_asked(step, step.folder, deviations=("temperature is 0.5",))
        found = standing(campaign, step)
        assert (found.state, "NOT OFFICIAL" in found.text) == (state, True)
        remedies = list(advice(campaign, step, found))
        assert remedies[0].startswith("Remove what deviates, from ") is (state == "lost")


@pytest.mark.parametrize(("division", "state"), [("closed", "lost"), ("open", "done")])
def test_a_run_that_test09_would_refuse_is_lost_before_hours_of_others(tmp_path, division, state):
    campaign, step = campaign_with(
        tmp_path, "performance", "server = { target_qps = 9.0 }\n", f"division = '{division}'\n"
    )
    run_as_asked(
        step, step.folder, statistics=structs.replace(ENDED.statistics, osl_mean=800.0, completed=6396)
    )
    found = standing(campaign, step)
    assert found.state == state
    if state == "lost":
        assert found.text.startswith("VALID, but the mean length of the answers is 800.00 tokens")
        (restart,) = advice(campaign, step, found)  # no other rate: that is not what is wrong
        assert "--restart gpt-oss-120b/server/performance" in restart


def test_no_time_is_expected_at_the_rate_of_other_prompts(tmp_path):
    """A B300 node of v6.0 had 79.4 samples/s; its accuracy run took 673 s, not 55."""
    found = expected_of(
        campaign_of(tmp_path, "offline = { target_qps = 79.4 }\n"), "performance", "done", 79.4
    )
    assert {name for name, text in found.items() if text} == {"TEST09"}
    cnn = tmp_path / "cnn"
    cnn.mkdir()
    (cnn / "my.toml").write_text(FILE.replace("gpt-oss-120b", '"llama3.1-8b"') + "target_qps = 100.0\n")
    found = expected_of(read_campaign(cnn / "my.toml"), "performance", "done", 100.0)
    assert found["accuracy"] == "about 2m13s"
    assert not found["TEST06"]  # 100 of its 13368 samples: the longest answer decides


@pytest.mark.parametrize(
    ("files", "expected"), [(("cnn", "cnn"), "about 50s"), (("cnn", "other"), ""), ((None, "other"), "")]
)
def test_no_time_is_expected_of_the_official_number_of_samples_in_another_file(tmp_path, files, expected):
    given = [
        f"{role} = '{file}'\n" for role, file in zip(("performance", "accuracy"), files, strict=True) if file
    ]
    text = FILE.replace("gpt-oss-120b.offline", '"llama3.1-8b"') + "".join(given)
    (tmp_path / "my.toml").write_text(f"{text}offline = {{ target_qps = 100.0 }}\n")
    campaign = read_campaign(tmp_path / "my.toml")
    assert expected_of(campaign, "performance", "done", 100.0, samples=5000)["accuracy"] == expected


@pytest.mark.parametrize(
    ("kind", "state", "rate", "expected"),
    [
        ("performance", "done", 31.0, "about 3m26s"),
        ("performance", "other", 7.8, "about 3m48s"),  # a run that is made again
        ("trial", "done", 2.786, "about 3m48s"),  # 64 samples of 9 s at once: not what 310 at once reach
    ],
)
def test_the_time_of_a_test_is_that_of_its_own_samples(tmp_path, kind, state, rate, expected):
    """At the rate that Offline's performance run had, else at the one asked for."""
    campaign = campaign_of(tmp_path, "offline = { target_qps = 28.0 }\n")
    assert expected_of(campaign, kind, state, rate)["TEST09"] == expected


def test_a_test_in_server_keeps_to_its_schedule(tmp_path):
    """6396 queries at 30 a second took 3m33s beside an Offline run of 31 samples/s and one of 10."""
    scenarios = "offline = { target_qps = 9.0 }\nserver = { target_qps = 30.0 }\n"
    found = {
        rate: expected_of(campaign_of(tmp_path, scenarios), "trial", "done", rate)["TEST09"]
        for rate in (31.0, 10.0)
    }
    assert set(found.values()) == {"about 3m33s"}


@pytest.mark.parametrize("scenario", ["offline", "server"])
def test_no_time_is_expected_before_a_search_has_found_the_rate(tmp_path, scenario):
    """That of the conf file, 9 or 10 a second, is none that a run will have."""
    campaign = campaign_of(tmp_path, f"{scenario} = {{ target_qps = 'search' }}\n")
    assert not any(expected_of(campaign, "trial", "done", 2.0).values())


def expected_of(campaign, kind, state, rate, samples=None):
    """The column *expected* by the last part of each step's name, where a step of ``kind`` had this rate."""
    steps = steps_of(campaign)
    (run,) = [one for one in steps if one.kind == kind]
    statistics = structs.replace(ENDED.statistics, samples_per_s=rate)
    samples = samples or run.plan.client.benchmark.dataset(accuracy=False).samples
    settled = structs.replace(ENDED.settled, samples=samples)
    record = structs.replace(ENDED, plan=run.plan, statistics=statistics, settled=settled)
    found = {one.name: Standing("missing") for one in steps} | {run.name: Standing(state, record=record)}
    return {name.rpartition("/")[2]: text for name, _, text, _ in rows(CampaignState(steps, found))[1:]}
