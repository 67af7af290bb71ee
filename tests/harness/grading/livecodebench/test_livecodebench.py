"""LiveCodeBench: real solutions against published verdicts; the index, the journal, the scheduler."""

import base64
import contextlib
import json
import os
import pickle
import resource
import sqlite3
import sys
import tomllib
import tracemalloc
import types
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import DatasetError, GradingError
from harness.grading.decoding.harmony import HarmonyText
from harness.grading.graders import code_blocks, programs
from harness.grading.livecodebench.compare import same_printout, same_value
from harness.grading.livecodebench.index import ProblemIndex, prepared
from harness.grading.livecodebench.program_journal import ResultJournal
from harness.grading.livecodebench.release import Example, read_problems
from harness.grading.livecodebench.run_solution import RACE_RUNS, RunLimits, run_solution
from harness.grading.livecodebench.runner import ExecutionConfig, ProgramTask, require_problems, run_programs
from harness.grading.sandbox.jail import preamble, protocol, values
from harness.grading.sandbox.jail.protocol import Job
from harness.grading.sandbox.sandbox_process import SandboxProcess
from harness.grading.sandbox.tiers import MEMORY_LIMIT, Tier, sandbox
from harness.grading.scoring.grade import GradingMode, Reason
from tests.harness.grading.conftest import quiet
from tests.harness.grading.samples import RELEASE
from tests.harness.grading.sandbox.tiers import process_in
from tests.harness.grading.shared import SHARED_DATA
from tests.kit import PATIENCE_S

SHARED = SHARED_DATA / "livecodebench"


@pytest.fixture(scope="module")
def process(tier: Tier) -> Iterator[SandboxProcess]:
    with process_in(tier) as made:
        yield made


# --- real solutions ---------------------------------------------------------------------------


def published() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SHARED / "solutions.jsonl").read_text().splitlines()]


needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="no published solutions on this machine")
VERDICTS = {
    GradingMode.OFFICIAL: "official_HEAD_runner_on_these_tests",
    GradingMode.STRICT: "real_process_semantics_on_these_tests",
}
# An unjoined thread races with the end of the official runner's test: its verdict, and ours, is a matter of
# luck on a busy machine. One of them may differ, and this share.
LUCK = 0.1


@needs_shared
def test_code_extraction_equals_the_published_one():
    """LiveCodeBench's own extraction, that is; MLPerf's strips it, and so does ours by the official rules."""
    rows = published()
    assert len(rows) > 250
    for row in rows:
        assert code_blocks.fenced_blocks(row["output"])[-1].code == row["code"]
        assert programs.gpt_oss.official_code(HarmonyText(row["output"])).code == row["code"].strip()


@needs_shared
@pytest.mark.parametrize(
    "some", [pytest.param(False, marks=pytest.mark.engine, id="all"), pytest.param(True, id="some")]
)
@pytest.mark.parametrize(
    "mode", [GradingMode.OFFICIAL, pytest.param(GradingMode.STRICT, marks=pytest.mark.engine)]
)
def test_verdicts_equal_the_published_ones(mode: GradingMode, some: bool, tier: Tier, tmp_path: Path):
    """``some``: the first of each class, and every sixteenth."""
    rows = published()
    if some:
        rows = [*{row["class"]: row for row in reversed(rows)}.values(), *rows[::16]]
    release = tmp_path / "release.jsonl"
    problems = json.loads((SHARED / "problems.json").read_text())
    release.write_text("".join(json.dumps(_as_released(problem)) + "\n" for problem in problems))
    execution = ExecutionConfig(prepared(release, quiet), sandbox(tier), 2, 60.0)
    tasks = [ProgramTask(mode, row["question_id"], row["code"]) for row in rows]
    outcomes = run_programs(tasks, execution, ResultJournal(tmp_path / "journal"), quiet)
    raced, differing = [], []
    for task, row in zip(tasks, rows, strict=True):
        if outcomes[task].passed != row[VERDICTS[mode]]:
            races = mode is GradingMode.OFFICIAL and row["thread_without_join"]
            (raced if races else differing).append((row["question_id"], row["class"]))
    assert differing == []
    assert len(raced) <= 1 + sum(row["thread_without_join"] for row in rows) * LUCK


def _as_released(problem: dict[str, Any]) -> dict[str, str]:
    """The official layout: the first test public, the others packed."""
    name = problem["func_name"]
    return {
        "question_id": problem["question_id"],
        "metadata": json.dumps({"func_name": name} if name else {}),
        "public_test_cases": json.dumps(problem["tests"][:1]),
        "private_test_cases": packed(json.dumps(problem["tests"][1:])),
    }


def packed(tests: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(tests))).decode()


# --- semantics --------------------------------------------------------------------------------

TESTS = [Example("3\n1\n2\n3\n", "6"), Example("1\n5\n", "5\n")]
PROGRAMS = tomllib.loads((Path(__file__).parent / "programs.toml").read_text())
READING, CALLS = PROGRAMS["reading"], PROGRAMS["calls"]
HUGE = ("def f(a): return 10 ** 6000", "1", "1" + "0" * 6000, True)


def test_solutions_find_the_names_of_the_preamble():
    executed: dict[str, Any] = {}
    limit = sys.getrecursionlimit()
    exec(preamble.SOURCE, executed)
    sys.setrecursionlimit(limit)
    made = vars(preamble.module("x"))
    assert {name for name in executed if made.get(name) is not executed[name]} == set()
    assert made.keys() - executed.keys() == vars(types.ModuleType("x")).keys()


@pytest.mark.parametrize("name", READING)
def test_reading_and_printing(name: str, process: SandboxProcess):
    source, official, strict = READING[name]
    for mode, expected in ((GradingMode.OFFICIAL, official), (GradingMode.STRICT, strict)):
        assert run_solution(process, Job(mode, "", source), TESTS, RunLimits(10.0)).passed is expected, mode


@pytest.mark.parametrize("call", [*CALLS.values(), HUGE], ids=[*CALLS, "a huge integer"])
@pytest.mark.parametrize("mode", GradingMode)
def test_calls(call: tuple[str, str, str, bool], mode: GradingMode, process: SandboxProcess):
    source, given, expected, passes = call
    outcome = run_solution(process, Job(mode, "f", source), [Example(given, expected)], RunLimits(10.0))
    assert outcome.passed is passes, outcome


# What ends a program is named, a limit of the sandbox by its kind.
OUT_OF_THREADS = (Reason.THREAD_LIMIT, Reason.MEMORY_LIMIT)  # each reserves address space
ENDINGS = {
    "memory": ("x = bytearray(64 << 30)", Reason.MEMORY_LIMIT),
    "memory of numpy": ("import numpy as np\nx = np.ones(1 << 33)", Reason.MEMORY_LIMIT),
    "threads": (
        "import threading, time\nthreading.stack_size(1 << 16)\n"
        "for _ in range(400): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        *OUT_OF_THREADS),
    "stacks": (
        "import threading, time\nthreading.stack_size(1 << 30)\n"
        "for _ in range(9): threading.Thread(target=time.sleep, args=(2,)).start()", *OUT_OF_THREADS),
    "files": ("import os\nx = [os.open('/dev/null', 0) for _ in range(100)]", Reason.FILE_LIMIT),
    "output": ("print('x' * (70 << 20))", Reason.OUTPUT_LIMIT),
    "signal": ("import os\nos.kill(os.getpid(), 9)", Reason.KILLED),
    "exception": ("1 / 0", Reason.RUNTIME_ERROR),
    "depth": ("def f(): f()\nf()", Reason.RUNTIME_ERROR),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("mode", GradingMode)
def test_endings_are_named(name: str, mode: GradingMode, process: SandboxProcess):
    source, *reasons = ENDINGS[name]
    if (name, mode) == ("signal", GradingMode.OFFICIAL):
        reasons = [Reason.RUNTIME_ERROR]  # os.kill is None there
    outcome = run_solution(process, Job(mode, "", source), TESTS, RunLimits(10.0))
    assert outcome.reason in reasons, outcome


# They need numpy, which the program does not name: the public runner has loaded it.
PACKAGES = """
from scipy.sparse.csgraph import dijkstra
from numba import njit
import networkx, sympy, pandas
@njit
def twice(x): return x + x
steps = dijkstra([[0, twice(3)], [0, 0]])[0, 1]
print(int(steps), networkx.path_graph(2).size(), sympy.isprime(7), pandas.Series([1]).sum())
"""


# They take 2 s of CPU to import.
@pytest.mark.engine
@pytest.mark.parametrize(
    "mode", [GradingMode.OFFICIAL, pytest.param(GradingMode.STRICT, marks=pytest.mark.engine)]
)
def test_programs_may_import_the_packages_of_the_official_environment(mode: GradingMode, tier: Tier):
    tests = [Example("", "6 1 True 1")]
    with process_in(tier, MEMORY_LIMIT) as process:
        outcome = run_solution(process, Job(mode, "", PACKAGES), tests, RunLimits(PATIENCE_S))
    assert outcome.passed, outcome


def test_a_thread_that_wins_only_sometimes_is_marked():
    runs: list[int] = []

    class Alternating:
        def begin(self, job: Job) -> None:
            runs.append(len(runs))

        def attempt(self, test_run: protocol.TestRun, more_memory: object) -> protocol.TestRunResult:
            return protocol.TestRunResult(protocol.OK, "", b"6" if runs[-1] % 2 == first else b"7")

    job = Job(GradingMode.OFFICIAL, "", "Thread(target=main).start()")
    for first, count in ((0, 2), (1, 2), (None, RACE_RUNS)):  # noqa: B007 - read in Alternating
        runs.clear()
        outcome = run_solution(Alternating(), job, TESTS[:1], RunLimits(1.0))  # type: ignore[arg-type]
        assert (outcome.reason, outcome.raced, len(runs)) == (Reason.WRONG, count == 2, count)


PRINTOUTS = [
    ("6\n", "6", True), ("  6  \n\n", "6", True), ("6", "7", False), ("1\n2", "1 2", False),
    ("1.0", "1", True), ("1e3 2", "1000 2.00", True), ("0.30000001", "0.3", False), ("Yes", "YES", False),
    ("nan", "nan", True), ("NaN", "nan", False), ("sNaN", "1", False), ("", "", True),
    ("1 2", "1 2", True), ("1 \n 2", "1\n2", True),
    ("1\n\n2", "1\n2", False), ("1_000", "1000", True),
    ("1 2 3", "1 2", False), ("1 2", "1.0 2 3", False),
    ("1\x1f2", "1.0 2", True), ("50000000000000000", "50000000000000001", False),
]  # fmt: skip


@pytest.mark.parametrize(("printed", "expected", "same"), PRINTOUTS)
def test_printouts(printed: str, expected: str, same: bool):
    assert same_printout(printed, expected) is same


@pytest.mark.parametrize("piece", ["a\n", "1 ", "[],", "x"])
def test_a_huge_output_does_not_fill_the_graders_memory(piece: str):
    text = piece * (4_000_000 // len(piece))
    encoded = b"[" + text.encode() + b"0]"
    tracemalloc.start()
    try:
        assert not same_printout(text, "1 2")
        assert not same_value(encoded, "[[]]")
        assert tracemalloc.get_traced_memory()[1] < 14_000_000  # a copy or two, not an object for each word
    finally:
        tracemalloc.stop()


def test_values_that_are_no_json_equal_nothing():
    assert not same_value(b"\xff", "1")
    assert not same_value(b"[" * 100_000, "1")
    assert isinstance(values.decode(b'{"ratio": ["0x1", "0x0"]}'), values.Opaque)


# --- release and index ------------------------------------------------------------------------


def test_the_index_holds_the_release(index: Path):
    found = ProblemIndex(index)
    for problem in read_problems(RELEASE):
        facts = found.find(problem.question_id)
        assert facts is not None and (facts.function, facts.tests) == (problem.function, len(problem.tests))
        assert tuple(found.tests(problem.question_id)) == problem.tests
    assert found.find("absent") is None


def test_the_index_is_built_once_and_again_when_the_release_changes(tmp_path: Path):
    release = tmp_path / "r.jsonl"
    release.write_bytes(RELEASE.read_bytes())
    told: list[str] = []
    first = prepared(tmp_path, told.append)
    assert {prepared(path, told.append) for path in (tmp_path, first)} == {first}
    assert len(told) == 1
    os.utime(release, (1, 1))
    prepared(tmp_path, told.append)
    assert len(told) == 2
    with contextlib.closing(sqlite3.connect(first)) as older, older:
        older.execute("UPDATE facts SET value = '1' WHERE name = 'format'")
    with pytest.raises(DatasetError, match=r"index format 1, expected 2; delete it"):
        prepared(first, told.append)
    prepared(tmp_path, told.append)
    assert len(told) == 3


def test_no_place_for_the_index_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "r.jsonl").write_bytes(RELEASE.read_bytes())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DatasetError) as error:
        prepared(tmp_path, quiet)
    assert f"{tmp_path} and {tmp_path}/cache/" in str(error.value)
    assert "export XDG_CACHE_HOME=" in str(error.value)


class Bomb:
    def __reduce__(self):
        return os.system, ("touch /tmp/bomb-went-off",)


ROW = json.loads(RELEASE.read_text().splitlines()[0])
BROKEN_ROWS = {
    "code in the pickle": {**ROW, "private_test_cases": packed(Bomb())},
    "a pickled list": {**ROW, "private_test_cases": packed([1])},
    "a number that is packed": {**ROW, "private_test_cases": packed("1")},
    "a mapping": {**ROW, "private_test_cases": '{"input": "1", "output": "1"}'},
    "an empty mapping": {**ROW, "private_test_cases": "{}"},
    "an empty text": {**ROW, "private_test_cases": '""'},
    "not packed": {**ROW, "private_test_cases": "????"},
    "no tests": {key: value for key, value in ROW.items() if key != "public_test_cases"},
    "numbers for tests": {**ROW, "public_test_cases": "[1]"},
    "a number": 7,
}


@pytest.mark.parametrize("name", BROKEN_ROWS)
def test_broken_releases_are_refused_and_leave_no_index(name: str, tmp_path: Path):
    release = tmp_path / "r.jsonl"
    release.write_text(json.dumps(ROW) + "\n" + json.dumps(BROKEN_ROWS[name]) + "\n")
    with pytest.raises(DatasetError, match=r"r\.jsonl:2: "):
        prepared(release, quiet)
    assert not Path("/tmp/bomb-went-off").exists()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["r.jsonl"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("public_test_cases", '[{"input": 1, "output": "2"}]'),
        ("public_test_cases", "{}"),
        ("private_test_cases", '{"input": "1"}'),
        ("question_id", "\ud800"),
        ("difficulty", "\ud800"),
        ("metadata", '{"func_name": 5}'),
    ],
)
def test_a_problem_that_is_none_is_named_by_its_line(field: str, value: str, tmp_path: Path):
    row = json.loads(RELEASE.read_text().splitlines()[0])
    (tmp_path / "r.jsonl").write_text(json.dumps({**row, field: value}) + "\n")
    with pytest.raises(DatasetError, match=rf"^{tmp_path}/r\.jsonl:1: not a LiveCodeBench problem \("):
        prepared(tmp_path, quiet)


def test_a_full_disk_leaves_no_index_and_one_line(tmp_path: Path):
    (tmp_path / "r.jsonl").write_bytes(RELEASE.read_bytes())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(DatasetError, match=r"lcb-index\.sqlite: cannot be written"):
            prepared(tmp_path, quiet)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["r.jsonl"]


def test_an_index_whose_names_are_no_text_is_named(index: Path):
    content = index.read_bytes()
    index.write_bytes(content.replace(b"difficulty", b"\xff" * 10))
    with pytest.raises(DatasetError, match="not a prepared LiveCodeBench index"):
        require_problems(index, ["sample-lamp-row"])


def test_a_damaged_index_is_named_wherever_it_is_read(tmp_path: Path):
    (tmp_path / "r.jsonl").write_bytes(RELEASE.read_bytes())
    index = prepared(tmp_path, quiet)
    content = index.read_bytes()
    refused = 0
    for page in range(4096, len(content), 4096):
        index.write_bytes(content[:page] + b"\xaa" * 4096 + content[page + 4096 :])
        try:
            found = ProblemIndex(index)
            for problem in read_problems(RELEASE):
                if found.find(problem.question_id):
                    list(found.tests(problem.question_id))
        except DatasetError as error:
            assert str(error).startswith(f"{index}: not a prepared LiveCodeBench index (")
            refused += 1
    assert refused


@pytest.mark.engine
def test_absent_problems_are_named_before_anything_runs(index: Path):
    with pytest.raises(GradingError, match=r"1 of 2 .*abc999_z"):
        require_problems(index, ["sample-lamp-row", "abc999_z"])
