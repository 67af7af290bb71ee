"""./mlperf as it is typed: from any folder, through a link, without its environment; every verb."""

import json
import os
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mlperf
from harness.cli.door import GROUPS, VERBS, first_screen, unknown
from tests.runs import ACCURACY, ROOT, quick_conf, write_dataset
from tests.stub import Facts, StubServer

DOOR = ROOT / "mlperf"
# A campaign has no program beside its verb.
PROGRAMS = {name: verb.program for name, verb in VERBS.items() if verb.program.endswith(".py")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
R1 = Facts(model="deepseek-ai/DeepSeek-R1", served_name="DeepSeek-R1", vocab_size=129280)


def run(*words, cwd=None, path=None, program=DOOR):
    environment = os.environ | ({"PATH": path} if path else {})
    return subprocess.run(
        [str(word) for word in (program, *words)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=cwd,
        env=environment,
    )


def in_path(folder: Path, name: str, text: str) -> Path:
    """A program of this name, first on a PATH; the folder."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def bare(tmp_path):
    """A checkout without .venv."""
    folder = tmp_path / "bare checkout"
    folder.mkdir()
    shutil.copy(DOOR, folder)
    for name in ("mlperf.py", "harness", "pyproject.toml", "configs"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def test_the_first_screen_is_one_screen():
    lines = first_screen().splitlines()
    assert len(lines) <= 34
    assert max(map(len, lines)) <= 80
    assert [verb for verbs in GROUPS.values() for verb in verbs] == list(VERBS)
    assert all(f"\n  {verb} " in first_screen() for verb in VERBS)


def test_help_from_another_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONSAFEPATH", "1")  # as hardened machines have it
    done = run("--help", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{first_screen()}\n", "")
    for word in ("-h", "help"):
        assert (mlperf.main([word]), capsys.readouterr()) == (0, (f"{first_screen()}\n", ""))


def test_help_through_a_link_of_a_link_on_the_path(tmp_path):
    (tmp_path / "first").symlink_to(os.path.relpath(DOOR, tmp_path))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mlperf").symlink_to("../first")
    done = run("--help", cwd=tmp_path, path=f"{tmp_path / 'bin'}:{os.environ['PATH']}", program="mlperf")
    assert (done.returncode, done.stdout) == (0, f"{first_screen()}\n")


def test_no_verb_shows_the_first_screen_as_an_error():
    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{first_screen()}\n")


def test_help_imports_nothing_that_takes_time():
    code = "import sys, mlperf\nsys.exit(mlperf.main(['--help']) or print(*sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    modules = set(done.stdout.splitlines()[-1].split())
    assert "harness.cli.door" in modules
    assert modules.isdisjoint({"argparse", "asyncio", "httpx", "logging", "msgspec", "numpy", "pyarrow"})


def test_without_an_environment_it_says_so(bare, tmp_path):
    stand_in = in_path(tmp_path / "bin", "python3", "exit 1")
    done = run("run", "--help", path=f"{stand_in}:/usr/bin:/bin", program=bare / "mlperf")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "run ./setup.sh first" in line and str(bare) in line


def test_an_environment_whose_interpreter_cannot_be_run_says_so(bare, tmp_path):
    """As one in the home folder of the user who has set it up; ./setup.sh would refuse to make another."""
    home = tmp_path / "home of another" / "python3"
    (bare / ".venv/bin").mkdir(parents=True)
    (bare / ".venv/bin/python").symlink_to(home)
    stand_in = in_path(tmp_path / "bin", "python3", "exit 1")
    done = run("run", "--help", path=f"{stand_in}:/usr/bin:/bin", program=bare / "mlperf")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert f"cannot be run here, {home}: the owner removes .venv" in line and "has no .venv" not in line


def test_an_activated_environment_takes_the_place_of_the_checkouts(bare, tmp_path):
    stand_in = in_path(tmp_path / "bin", "python3", f'exec {shlex.quote(sys.executable)} "$@"')
    done = run("--help", path=f"{stand_in}:/usr/bin:/bin", program=bare / "mlperf")
    assert (done.returncode, done.stdout) == (0, f"{first_screen()}\n")


def test_other_packages_on_the_pythonpath_are_one_line(tmp_path, monkeypatch):
    """As a cluster's modules put them there; a path without any of ours hides nothing."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    assert run("score", "--help", cwd=tmp_path).returncode == 0
    (tmp_path / "msgspec").mkdir()
    (tmp_path / "msgspec/__init__.py").write_text("")
    for places in (f"{tmp_path}:{ROOT}", "."):
        monkeypatch.setenv("PYTHONPATH", places)
        done = run("score", "--mlperf-log", "x", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert f"{tmp_path}/msgspec/__init__.py" in line and "env -u PYTHONPATH ./mlperf" in line


def test_the_home_of_another_python_does_not_end_this_one(tmp_path, monkeypatch):
    """Python would end with a page of its paths, and exit code 1."""
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    done = run("--help")
    assert (done.returncode, done.stdout) == (0, f"{first_screen()}\n")


def test_the_score_of_prompts_has_an_environment_of_its_own(bare, tmp_path):
    for name in (".venv", ".venv-score"):
        (bare / name).mkdir()
        in_path(bare / name / "bin", "python", f"echo {name}")
    assert run("prompts", "score", program=bare / "mlperf").stdout == ".venv-score\n"
    assert run("prompts", "run", program=bare / "mlperf").stdout == ".venv\n"
    assert run("score", program=bare / "mlperf").stdout == ".venv\n"


@pytest.fixture
def typed(monkeypatch, capsys):
    """What ./mlperf does with its words, in this process: exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", sys.argv)

    def run_here(*words):
        with pytest.raises(SystemExit) as end:
            mlperf.main(list(words))
        return end.value.code, *capsys.readouterr()

    return run_here


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_names_itself_in_help_and_errors(verb, typed):
    code, shown, error = typed("help", verb)
    assert (code, error) == (0, "")
    assert shown.startswith(f"usage: ./mlperf {verb} ")
    code, shown, error = typed(verb, "--no-such-flag")
    assert (code, shown) == (2, "")
    (line,) = error.splitlines()
    assert line.startswith(f"./mlperf {verb}: error: ") and line.endswith(f"see ./mlperf {verb} --help")


COMMANDS = [
    *(("submit", name) for name in ("system", "build", "check")),
    *(("report", name) for name in ("show", "compare", "watch", "list")),
    *(("prompts", name) for name in ("run", "chat", "generate", "encode", "decode", "score")),
    *(("endpoints", name) for name in ("run", "build", "check", "compare")),
    ("comply", "verify"),
]


@pytest.mark.parametrize(("verb", "command"), COMMANDS)
def test_every_command_of_a_verb_is_reached(verb, command, typed):
    code, shown, error = typed("help", verb, command)
    assert (code, error) == (0, "")
    assert shown.startswith(f"usage: ./mlperf {verb} {command} ")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("scor", "score"),
        ("RUN", "run"),
        ("search", "peak"),
        ("endpoint", "endpoints"),
        ("laddr", "ladder"),
        ("pareto", "endpoints"),
        ("run_mlperf.py", "run"),
        ("eval_mlperf_accuracy.py", "score"),
        ("watch", "report watch"),
        ("check", "submit check"),
        ("compliance", "comply"),
    ],
)
def test_an_unknown_verb_is_one_line_with_the_one_that_is_meant(word, meant):
    assert f"did you mean ./mlperf {meant}?" in unknown(word)


def test_a_word_that_means_nothing_is_one_line():
    done = run("\x1b[31mzzz", "--flag")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert all(verb in line for verb in VERBS) and "\x1b" not in line


def test_an_error_of_a_program_is_the_verbs(tmp_path):
    done = run("run", "--input-file", tmp_path / "missing.parquet", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("./mlperf run: error: ")


@pytest.fixture(scope="module")
def commit():
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout


@pytest.mark.parametrize("program", sorted({"mlperf.py", *PROGRAMS.values(), "eval_accuracy.py"}))
def test_every_program_shows_the_version(program, commit, monkeypatch, capsys):
    mains = []
    monkeypatch.setattr("harness.cli.main.run_main", mains.append)
    monkeypatch.setattr(sys, "argv", [str(ROOT / program)])
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(ROOT))])
    monkeypatch.chdir("/")
    runpy.run_path(sys.argv[0], run_name="__main__")
    assert str(ROOT) in sys.path  # also with PYTHONSAFEPATH, as hardened machines have it
    try:
        code = mains[0](["--version"])
    except SystemExit as end:
        code = end.code
    shown, error = capsys.readouterr()
    assert (code, error) == (0, "")
    name, number, *rest = shown.split()
    assert (name, number) == (PROJECT["name"], PROJECT["version"])
    assert commit[:12] in " ".join(rest) if commit else not rest


def test_a_verb_of_a_program_shows_the_version():
    assert run("report", "--version").stdout == run("--version").stdout


@pytest.mark.engine
def test_a_run_records_and_prints_commands_of_the_door(tmp_path):
    """Those that score and repeat it; the scoring one is run as printed, from the folder of the run."""
    with StubServer() as stub:
        flags = ("--accuracy", "--input-file", ACCURACY, "--max-new-tokens", 5, "--server-url", stub.url)
        more = ("--user-conf", quick_conf(tmp_path), "--results", "out", "--no-report")
        done = run("run", *flags, *more, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "out/offline/accuracy/run.json").read_text())
    assert record["provenance"]["command"] == [str(DOOR), "run", *map(str, (*flags, *more))]
    (hint,) = (line for line in done.stdout.splitlines() if line.startswith("Score it with: "))
    words = shlex.split(hint.removeprefix("Score it with: "))
    assert words[:2] == [str(DOOR), "score"]
    scored = run(*words[1:], "--mode", "official", cwd=tmp_path)
    assert scored.returncode == 5, scored.stderr


@pytest.mark.engine
def test_a_deepseek_server_and_dataset_without_a_benchmark(tmp_path):
    """One line of a dry run names the benchmark of the server, another that of the dataset."""
    dataset = write_dataset(tmp_path / "mlperf_deepseek_r1_dataset_4388_fp8_eval.parquet", [[5, 6]] * 4388)
    with StubServer(facts=R1) as stub:
        flags = ("--input-file", dataset, "--server-url", stub.url, "--dry-run", "--results", tmp_path)
        without = run("run", *flags, cwd=tmp_path)
        named = run("run", *flags, "--benchmark", "deepseek-r1", cwd=tmp_path)
    lines = [line for line in without.stdout.splitlines() if "--benchmark deepseek-r1" in line]
    assert [line.split()[0] for line in lines] == ["DEVIATION", "DEVIATION"]
    assert "serves deepseek-ai/DeepSeek-R1" in lines[0] + lines[1]
    assert "4,388 samples" in lines[0] + lines[1]
    assert named.returncode == 0, named.stderr
    assert "--benchmark" not in named.stdout.replace("datasets/download.sh --benchmark", "")
