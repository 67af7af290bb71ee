"""The sections of a first run: one that fails, or has no time; the table; the commands."""

import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from msgspec import structs

from benchmarks.gpu import section_commands as commands
from benchmarks.gpu import section_figures as figures
from benchmarks.gpu import section_runs
from benchmarks.gpu.carry import lacking, names_in
from benchmarks.gpu.section_runs import FirstRun, typed
from benchmarks.gpu.section_table import PAGE, Row, Table
from benchmarks.gpu.sections import SERVER, Section, sections
from harness.campaign.conf import user_conf
from harness.cli.signals import InterruptedRun
from harness.compliance.compliance_options import parse_options as compliance_options
from harness.config.run_options import parse_options as run_options
from harness.config.run_plan import resolve_plan
from harness.errors import ConfigError
from harness.files import ROOT, RUN_RECORD
from harness.grading.evaluation_options import parse_options as evaluation_options
from harness.peak.peak_options import parse_options as peak_options
from harness.record.run_record import Level, ServerLoad
from harness.report.report_options import parse_options as report_options
from sut.doctor.doctor_options import parse_options as doctor_options
from tests.kit import free_ports
from tests.records import ENDED

TABLE = Table(machine={"host_processor_model_name": "one"}, commit="c0ffee", rehearsal=True)
SAYS = 'print("{\\"rate\\": 12.5}")'


def read_output(folder):
    return json.loads((folder / figures.OUTPUT).read_text()), ""


def section(name, code, **more):
    values = {"question": f"Does {name} end?", "expected_s": 0, "limit_s": 120, "figures": read_output}
    return Section(name=name, words=lambda site: [sys.executable, "-c", code], **(values | more))


@pytest.fixture
def site(tmp_path):
    return commands.Site(tmp_path / "first", commands.REHEARSAL, free_ports(1), cores=2)


@pytest.fixture
def measured(site):
    """Runs sections in the folder, as one command does; returns the exit code and the table on disk."""
    site.folder.mkdir()

    def measure(*these, only=(), seconds=600.0, table=TABLE):
        code = FirstRun(site, table, these, seconds).measure(only)
        return code, Table.read(site.folder)

    return measure


def statuses(table):
    return {row.name: row.status for row in table.rows}


def test_a_section_that_fails_is_a_row_and_the_others_run(measured, site):
    these = (
        section("fails", "import sys; print('one'); sys.exit('no such GPU')"),
        section("says nothing to read", "print('text')"),
        section("does not end", "import time; time.sleep(3600)", limit_s=1),
        section("works", SAYS),
    )
    code, table = measured(*these)
    assert (code, statuses(table)) == (
        4,
        {"fails": "failed", "says nothing to read": "failed", "does not end": "failed", "works": "ok"},
    )
    assert [row.exit_code for row in table.rows] == [1, 0, None, 0]
    assert table.row("fails").reason == "no such GPU"
    assert "no figures" in table.row("says nothing to read").reason
    assert "limit of 1s" in table.row("does not end").reason
    assert table.row("works").figures == {"rate": 12.5}


def test_a_repeated_command_tries_what_is_not_ok(measured, site):
    fails = section("fails", "import sys; sys.exit(3)")
    _, first = measured(section("works", SAYS), fails)
    code, second = measured(section("works", "import sys; sys.exit(9)"), section("fails", SAYS), table=first)
    assert (code, statuses(second)) == (0, {"works": "ok", "fails": "ok"})
    assert second.row("works") == first.row("works")
    assert len(list(site.folder.glob("fails*"))) == 2  # what the first try left is moved aside
    code, third = measured(section("works", "import sys; sys.exit(9)"), fails, only=["works"], table=second)
    assert (code, statuses(third)) == (4, {"works": "failed", "fails": "ok"})


def test_what_there_is_no_time_for_is_not_begun(measured, site):
    these = (section("long", SAYS, expected_s=700), section("short", SAYS, expected_s=5))
    code, table = measured(*these)
    assert (code, statuses(table)) == (4, {"long": "not run", "short": "ok"})
    assert (table.row("long").command, site.of("long").exists()) == ("", False)
    assert "repeat the command" in table.row("long").reason


def test_without_its_server_a_section_is_not_run(measured, monkeypatch):
    monkeypatch.setattr(section_runs, "server", lambda _: ["sh", "-c", "echo out of memory; exit 7"])
    serve = Section(SERVER, "Does it start?", 0, 120, figures.server)
    these = (serve, section("asks", SAYS, needs_server=True), section("client", SAYS))
    code, table = measured(*these)
    assert (code, statuses(table)) == (4, {SERVER: "failed", "asks": "not run", "client": "ok"})
    for row in (table.row(SERVER), table.row("asks")):
        assert "out of memory" in row.reason
    _, table = measured(*these, only=["asks"], table=TABLE)  # which starts the server again, for itself
    assert list(statuses(table)) == [SERVER, "asks"]


def test_a_signal_leaves_a_row_that_is_tried_again(measured, site):
    def interrupted(_):
        raise InterruptedRun(signal.SIGTERM)

    with pytest.raises(InterruptedRun):
        measured(
            section("works", SAYS), replace(section("long", SAYS), words=interrupted), section("last", SAYS)
        )
    table = Table.read(site.folder)
    assert statuses(table) == {"works": "ok", "long": "failed"}
    assert table.row("long").reason == "ended by SIGTERM"


def test_the_page_has_every_row(tmp_path):
    row = Row(name="offline", status="failed", question="What?", command="./mlperf run", exit_code=4)
    row = structs.replace(row, seconds=75.0, figures={"tokens/s": 1234.5, "none": None}, reason="a|b\nc")
    table = TABLE.with_row(row, ["doctor", "offline"]).with_row(
        Row(name="doctor", status="ok", question="Fit?"), ["doctor", "offline"]
    )
    table.write(tmp_path)
    assert Table.read(tmp_path) == table
    lines = (tmp_path / PAGE).read_text().splitlines()
    assert "| doctor | ok | 0s |  |" in lines
    assert "| offline | failed (exit code 4): a\\|b\\nc | 1m15s | tokens/s 1,234 |" in lines
    assert "./mlperf run" in lines


def test_a_file_that_is_no_table_is_refused(tmp_path):
    assert Table.read(tmp_path) is None
    (tmp_path / "table.json").write_text('{"machine": 3}')
    with pytest.raises(ConfigError, match=r"table\.json"):
        Table.read(tmp_path)


def test_figures_of_a_run_are_those_of_its_record(tmp_path):
    levels = {"gpu_power": Level(612.4, 701.0, 1.0), "gpu_slowed": Level(0.1, 1.0, 0.25)}
    load = ServerLoad(rounds=4, servers=1, levels=levels, gpus_j_per_token=0.5)
    (tmp_path / "server/performance").mkdir(parents=True)
    structs.replace(ENDED, server_load=load).write(tmp_path / "server/performance" / RUN_RECORD)
    found, why = figures.run(tmp_path)
    assert (found["result"], why) == ("INVALID", "; ".join(ENDED.verdict.reasons))
    assert found["TPOT p99 ms"] == ENDED.statistics.tpot.percentiles["99"] / 1e6
    assert found["samples/s"] == ENDED.statistics.samples_per_s
    gpus = {name: value for name, value in found.items() if "GPU" in name or "J/" in name}
    assert gpus == {"GPU W": "612, at most 701", "GPU slowed": "25% of the readings", "J/token": 0.5}


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"verdict": "VALID", "failures": 0}, ""),
        ({"verdict": "INVALID", "failures": 0}, "the run at this load was INVALID"),
        ({"failures": {"timeout": 3}, "reasons": "3 of 900 queries failed"}, "3 of 900 queries failed"),
    ],
)
def test_a_load_that_was_not_carried_is_not_ok(tmp_path, result, why):
    (tmp_path / "record_load_72-gpu.json").write_text(json.dumps(result))
    assert figures.record_load("72-gpu")(tmp_path)[1] == why


PARSERS = {
    "doctor": doctor_options,
    "run": run_options,
    "score": evaluation_options,
    "comply": compliance_options,
    "peak": lambda words: peak_options(["search", *words]),
    "report": report_options,
}


@pytest.mark.parametrize(
    ("sizes", "backend"),
    [(commands.FULL, "pytorch"), (commands.SGLANG, "sglang"), (commands.REHEARSAL, "pytorch")],
    ids=["full", "sglang", "rehearsal"],
)
def test_the_programs_take_the_commands(tmp_path, sizes, backend):
    site, parsed = commands.Site(tmp_path, sizes, 30000, cores=16, backend=backend), []
    for one in sections():
        site.of(one.name).mkdir()
        if one.words is None:
            continue
        words = [str(word) for word in one.words(site)]
        if words[1] != str(commands.DOOR):
            continue
        options = PARSERS[words[2]](words[3:])
        parsed.append(words[2])
        assert typed(words).startswith(f"./mlperf {words[2]} ")
        if words[2] == "run":
            user_conf(options.user_conf).settings(resolve_plan(options))
    assert sorted(set(parsed)) == sorted(PARSERS)


@pytest.mark.engine
def test_sglang_is_started_by_its_own_script(tmp_path):
    flags = ("--attention-backend", "triton")
    site = commands.Site(tmp_path, commands.SGLANG, 30000, cores=16, backend="sglang", server_flags=flags)
    words = [*commands.server(site), "--dry-run"]
    command = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    for one in (" --load-format dummy ", " --port 30000 ", " --max-running-requests 512 ", *flags):
        assert one in f"{command.stdout} ", command


def test_the_sections_fit_into_25_minutes():
    expected = [one.expected_s for one in sections()]
    assert sum(expected) <= 25 * 60
    assert all(one.expected_s < one.limit_s for one in sections())


@pytest.mark.parametrize(
    ("samples_per_s", "rate"), [(10.0, 7.0), (None, 0.7)], ids=["as Offline shows", "without Offline"]
)
def test_the_rate_of_the_server_run(tmp_path, samples_per_s, rate):
    site = commands.Site(tmp_path, commands.FULL, 30000, cores=16)
    for name in ("offline", "server"):
        site.of(name).mkdir()
    if samples_per_s:
        statistics = structs.replace(ENDED.statistics, samples_per_s=samples_per_s)
        structs.replace(ENDED, statistics=statistics).write(site.of("offline") / RUN_RECORD)
    words = [str(word) for word in commands.server_run(site)]
    conf = user_conf(run_options(words[3:]).user_conf)
    assert conf.settings(resolve_plan(run_options(words[3:])))["target_qps"] == rate


def test_what_a_machine_lacks():
    freeze = "torch==2.11.0+cu130\nNumPy==2.5.2\nmarkdown-it_py==3.0.0\npyarrow @ file:///w/pyarrow.whl\n"
    assert (
        names_in(freeze)
        == {"torch", "numpy", "markdown-it-py", "pyarrow"}
        == names_in("torch, numpy, markdown-it-py,pyarrow")
    )
    missing = lacking(names_in(freeze))
    assert {"mlcommons-loadgen", "msgspec", "aiohttp", "psutil"} <= missing.keys()
    assert not {"numpy", "pyarrow", "torch", "transformers", "triton"} & missing.keys()
    assert all(lines.startswith(f"{name}==") and "--hash=sha256:" in lines for name, lines in missing.items())
