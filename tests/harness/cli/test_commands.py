"""Commands in messages: started as the user started the program, and taken by the program that they name."""

import shlex
import sys

import pytest

from harness.cli.commands import recorded, start_of
from harness.cli.door import LAUNCHER, called
from harness.config.run_options import build_parser
from harness.peak.peak_options import parse_options as search_options
from harness.report.search_advice import search_command
from tests.runs import ROOT

DOOR = str(LAUNCHER)
PYTHON = sys.executable


@pytest.fixture(params=[(DOOR, "report", "list"), (str(ROOT / "report.py"), "list")])
def by_door(request, monkeypatch, tmp_path):
    """This process as if started by the door, and as if by a program, in a folder elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*request.param])
    return request.param[0] == DOOR


@pytest.mark.parametrize(
    ("program", "command", "verb"),
    [
        ("eval_mlperf_accuracy.py", "", "score"),
        ("find_peak.py", "search", "peak"),
        ("find_peak.py", "ladder", "ladder"),
        ("run_endpoints.py", "", "endpoints"),
    ],
)
def test_a_program_is_started_as_this_one_was(by_door, program, command, verb):
    words = (DOOR, verb) if by_door else (PYTHON, str(ROOT / program), *filter(None, [command]))
    assert start_of(program, command) == words
    assert called(program, command) == (f"./mlperf {verb}" if by_door else f"{program} {command}".strip())


def test_a_parser_is_built_once_under_either_name(by_door):
    parser = build_parser()
    assert parser is build_parser()
    assert parser.prog == called("run_mlperf.py")


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        ((DOOR, "run", "--accuracy"), (DOOR, "run")),
        ((str(ROOT / "run_mlperf.py"), "--accuracy"), (PYTHON, str(ROOT / "run_mlperf.py"))),
    ],
)
def test_a_recorded_command_has_its_verb_before_its_flags(by_door, arguments, start):
    assert recorded(arguments) == (start, ("--accuracy",), "")


@pytest.mark.parametrize("program", [DOOR, str(ROOT / "run_mlperf.py")])
def test_a_command_of_another_folder_begins_there(by_door, program, tmp_path):
    """There its paths begin, those of flags as those of the interpreter and the program."""
    here = recorded([program, "run"], str(tmp_path))
    assert str(here) == shlex.join([*here.start, *here.flags])
    assert here.anywhere() == f"cd {tmp_path} && {here}"
    there = recorded([program, "run"], str(ROOT))
    assert (
        there.start[-2:] == ("./mlperf", "run") if program == DOOR else there.start[1:] == ("run_mlperf.py",)
    )
    assert str(there) == there.anywhere() == f"cd {ROOT} && {shlex.join([*there.start, *there.flags])}"


OF_A_RUN = ["--max_samples", "64", "--total-sample-count=9", "--restart", "--official", "--no-report"]


@pytest.mark.parametrize("start", [[DOOR, "run"], ["run_mlperf.py"]])
def test_the_search_after_a_run_is_taken_by_the_program(by_door, start):
    flags = ["--scenario", "server", "--input-file", "p.parquet", *OF_A_RUN, "--timeout", "90"]
    words = shlex.split(str(search_command([*start, *flags], 17.0)))
    expected = [DOOR, "peak"] if by_door else [PYTHON, str(ROOT / "find_peak.py"), "search"]
    assert words[: len(expected)] == expected
    found = search_options(["search", *words[len(expected) :]])
    assert (found.start_qps, found.timeout, str(found.input_file)) == (17.0, 90, "p.parquet")
