"""The file of a campaign: what it may hold, and what is said about what it may not."""

import tomllib

import pytest

from harness.campaign.campaign_file import read_campaign
from harness.campaign.campaign_options import parse_options
from harness.campaign.steps import steps_of
from harness.campaign.variables import keep
from harness.config.scenario import Scenario
from harness.errors import ConfigError
from tests.runs import ROOT

HEAD = 'submitter = "Org"\nsystem_id = "box"\n'
OFFLINE = "[benchmarks.gpt-oss-120b.offline]\n"


def campaign(tmp_path, text, **words):
    (tmp_path / "my.toml").write_text(HEAD + text)
    return read_campaign(tmp_path / "my.toml", **words)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[benchmark.gpt-oss-120b.offline]\n", ("benchmark", "'benchmarks'")),
        ("[benchmarks.gpt-os-120b.offline]\n", ("gpt-os-120b", "'gpt-oss-120b'")),
        ("[benchmarks.gpt-oss-120b.ofline]\n", ("ofline", "'offline'")),
        ("[benchmarks.llama3.1-8b.offline]\n", ('[benchmarks."llama3.1-8b"]', "dot")),
        ('[benchmarks."llama3.1-8b"]\n', ('[benchmarks."llama3.1-8b".offline]',)),
        ("[benchmarks.gpt-oss-120b]\n", ("names no scenario",)),
        (OFFLINE + "target_qsp = 3\n", ("target_qsp", "'target_qps'")),
        (OFFLINE + "target_qps = 'serch'\n", ("serch", "'search'")),
        (OFFLINE + "target_qps = -1.0\n", ("-1.0", "above 0")),
        (OFFLINE + "target_qps = true\n", ("target_qps",)),
        (OFFLINE + "target_latency = 3\n", ("target_latency", "target_qps")),
        (OFFLINE + OFFLINE, ("twice",)),
        ("[servers]\ncomand = 'x'\n" + OFFLINE, ("comand", "'command'")),
        ("[servers]\nbackend = 'triton'\n" + OFFLINE, ("triton", "expected one of sglang")),
        ("[servers]\napi = 'chatt'\n" + OFFLINE, ("chatt", "'chat'")),
        ("division = 'opn'\n" + OFFLINE, (": Invalid enum value 'opn'", "'open'")),
        ("[servers]\nwait = 'soon'\n" + OFFLINE, ("wait of the servers is 'soon'", "30m")),
        ("round = 'v1.0'\n" + OFFLINE, ("v1.0", "v6.0")),
        ("", ("[benchmarks.NAME.SCENARIO]",)),
    ],
)
def test_a_mistake_is_one_line_with_what_may_be_meant(tmp_path, text, named):
    with pytest.raises(ConfigError) as error:
        campaign(tmp_path, text)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "my.toml")), "a campaign has no flag --submission"
    for word in named:
        assert word in str(error.value)


def test_the_nearer_table_of_servers_replaces_single_values(tmp_path):
    found = campaign(
        tmp_path,
        "[servers]\ncommand = 'a'\nurl = 'http://x:1'\nwait = '5m'\n"
        "[benchmarks.gpt-oss-120b]\nservers.wait = '6m'\n"
        "[benchmarks.gpt-oss-120b.offline]\n"
        "[benchmarks.gpt-oss-120b.server]\nservers.command = 'b'\n",
    )
    offline, server = (
        found.scenario_servers("gpt-oss-120b", one) for one in (Scenario.OFFLINE, Scenario.SERVER)
    )
    assert (offline.command, offline.url, offline.wait) == ("a", ("http://x:1",), "6m")
    assert (server.command, server.url, server.wait) == ("b", ("http://x:1",), "6m")


@pytest.mark.parametrize("nodes", ["n[1-2]", "10.0.0.[1-2]"])
def test_variables_of_the_environment_in_urls(tmp_path, monkeypatch, nodes):
    monkeypatch.setenv("NODES", nodes)
    monkeypatch.delenv("OTHER", raising=False)
    found = campaign(tmp_path, "[servers]\nurl = ['slurm:$NODES:1', 'http://${NODES}:2']\n" + OFFLINE)
    servers = found.scenario_servers("gpt-oss-120b", Scenario.OFFLINE)
    assert servers.url == (f"slurm:{nodes}:1", f"http://{nodes}:2")
    found.folder.mkdir(parents=True)
    keep(found.folder, found.urls())
    monkeypatch.delenv("NODES")  # as where its job has ended
    assert found.scenario_servers("gpt-oss-120b", Scenario.OFFLINE) == servers
    found = campaign(tmp_path, "[servers]\nurl = 'slurm:$OTHER:1'\n" + OFFLINE)
    with pytest.raises(ConfigError, match=r"\$OTHER is not set"):
        found.scenario_servers("gpt-oss-120b", Scenario.OFFLINE)


def test_a_rehearsal_has_folders_of_its_own(tmp_path):
    real, rehearsed = (campaign(tmp_path, OFFLINE, rehearsal=one) for one in (False, True))
    assert {real.results, real.output}.isdisjoint({rehearsed.results, rehearsed.output})
    assert rehearsed.results.parent == real.results.parent == tmp_path
    assert real.strict
    assert not rehearsed.strict


def test_a_rehearsal_asks_the_server_of_this_machine(tmp_path):
    """Never those of the file, which may have a real run."""
    text = "[servers]\nurl = 'http://x:1'\ncommand = 'serve'\n" + OFFLINE
    asked = [one.servers for one in steps_of(campaign(tmp_path, text, rehearsal=True)) if one.servers]
    assert {(one.backend, one.url, one.command) for one in asked} == {("embedded", (), None)}


def test_the_example_is_a_campaign():
    path = ROOT / "configs/submission/example.toml"
    found = read_campaign(path)
    assert set(found.benchmarks) == set(tomllib.loads(path.read_text())["benchmarks"])


def test_a_build_takes_the_scenarios_of_the_file_and_no_others(tmp_path):
    """Left-over runs of another scenario would be asked for to the end: GPU hours."""
    llama = '[benchmarks."llama3.1-8b".offline]\n'
    server = '[benchmarks."llama3.1-8b".server]\n'
    builds = []
    for text in (OFFLINE + llama, OFFLINE + llama + server):
        steps = steps_of(campaign(tmp_path, text, rehearsal=True))
        builds.append([(one.name, " ".join(one.words)) for one in steps if one.kind == "build"])
    ((name, words),), (gpt, other) = builds
    assert (name, gpt[0], other[0]) == ("build", "gpt-oss-120b/build", "llama3.1-8b/build")
    for text in (words, gpt[1]):
        assert "--scenario offline" in text
        assert "--scenario server" not in text
    assert "--benchmark llama3.1-8b --scenario offline --scenario server" in other[1]


@pytest.mark.parametrize(
    ("flag", "rate", "programs"),
    [("--no-reprot", "9.0", "run and comply"), ("--no-report", "'search'", "peak")],
)
def test_a_flag_that_a_program_does_not_take_is_found_in_the_file(tmp_path, capsys, flag, rate, programs):
    text = f"[benchmarks.gpt-oss-120b]\nflags = ['{flag}']\nserver = {{ target_qps = {rate} }}\n"
    with pytest.raises(ConfigError, match=r"my\.toml: flags of") as error:
        steps_of(campaign(tmp_path, text))
    assert "[benchmarks.gpt-oss-120b.server]" in str(error.value)
    assert programs in str(error.value)
    assert flag in capsys.readouterr().err  # argparse's own line


def test_flags_in_one_text_and_a_wait_in_seconds(tmp_path):
    lists = "flags = ['--max-concurrency', '64', '--ca-file=my ca.pem']\nservers.wait = '1800'\n"
    texts = "flags = \"--max-concurrency 64 '--ca-file=my ca.pem'\"\nservers.wait = 1800\n"
    (tmp_path / "my ca.pem").touch()
    made = []
    for table in (lists, texts):
        steps = steps_of(campaign(tmp_path, f"[benchmarks.gpt-oss-120b]\n{table}server.target_qps = 9.0\n"))
        made.append([step.words for step in steps])
    assert made[0] == made[1] and f"--ca-file={tmp_path / 'my ca.pem'}" in made[1][0]
    with pytest.raises(ConfigError, match=r"my\.toml: flags of gpt-oss-120b/server: No closing quotation"):
        steps_of(
            campaign(tmp_path, "[benchmarks.gpt-oss-120b]\nflags = '--x \"y'\nserver.target_qps = 9.0\n")
        )


@pytest.mark.parametrize(
    ("flag", "name", "remedy"),
    [
        ("--accuracy", "--accuracy", "remove it"),
        ("--output-dir=elsewhere", "--output-dir", "remove it, and write results at the top"),
        ("--output_log_dir=elsewhere", "--results", "remove it, and write results at the top"),
        ("--wait_for_servers=2h", "--wait-for-servers", "remove it, and write wait of the servers"),
    ],
)
def test_a_flag_that_the_campaign_sets_is_refused(tmp_path, flag, name, remedy):
    """The last one of two counts: a performance run in accuracy mode, or results that no step finds."""
    text = f"[benchmarks.gpt-oss-120b]\nflags = ['{flag}']\nserver = {{ target_qps = 9.0 }}\n"
    with pytest.raises(ConfigError, match=f": {name} is the campaign's own; {remedy}$"):
        steps_of(campaign(tmp_path, text))


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ("servers.url = 'htp://x:1'", "--server-url htp://x:1: expected http"),
        ("flags = ['--max-concurrency', '0']", "--max-concurrency is 0"),
    ],
)
def test_a_value_that_no_run_takes_is_found_in_the_file(tmp_path, table, wrong):
    """A url of the file was called --server-url, without a place."""
    text = f"[benchmarks.gpt-oss-120b]\n{table}\nserver = {{ target_qps = 9.0 }}\n"
    with pytest.raises(ConfigError) as error:
        steps_of(campaign(tmp_path, text))
    assert str(error.value).startswith(f"{tmp_path / 'my.toml'}: gpt-oss-120b/server: {wrong}")


@pytest.mark.parametrize("words", ["status --rehearsal F", "--rehearsal status F", "F status --rehearsal"])
def test_status_may_stand_anywhere(words):
    options = parse_options(words.split())
    assert (options.status, options.rehearsal, str(options.file)) == (True, True, "F")
    assert not parse_options(["--rehearsal", "./status"]).status


def test_status_is_no_flag(capsys):
    """The flag was an unrecognized argument, with --help as the remedy."""
    with pytest.raises(SystemExit):
        parse_options(["--status", "F"])
    assert "--status: it is a word, no flag: write " in capsys.readouterr().err


def test_status_begins_no_step_anew(capsys):
    """The flag had no effect, and no word."""
    with pytest.raises(SystemExit) as ended:
        parse_options(["status", "F", "--restart", "gpt-oss-120b/offline"])
    assert ended.value.code == 2
    assert "--restart gpt-oss-120b/offline: status only prints" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["statuss {}", "{} statuss"])
def test_a_mistyped_word_is_named_not_the_file(words, tmp_path, capsys):
    (file := tmp_path / "my.toml").touch()
    with pytest.raises(SystemExit) as ended:
        parse_options(words.format(file).split())
    assert ended.value.code == 2
    assert "unexpected 'statuss'; expected FILE, or status FILE" in capsys.readouterr().err


def test_the_example_describes_as_many_nodes_as_it_measures():
    example = tomllib.loads((ROOT / "configs/submission/example.toml").read_text())
    assert (example["system"]["number_of_nodes"], example["servers"]["url"]) == (1, "http://localhost:30000")


def test_a_mistake_in_the_user_conf_is_found_before_the_first_run(tmp_path):
    (tmp_path / "my.conf").write_text("*.Server.min_duratoin = 3\n")
    text = "[benchmarks.gpt-oss-120b]\nuser_conf = 'my.conf'\nserver = { target_qps = 9.0 }\n"
    with pytest.raises(ConfigError, match=r"my\.conf:1: .*'\*\.Server\.min_duration = 3'"):
        steps_of(campaign(tmp_path, text))
