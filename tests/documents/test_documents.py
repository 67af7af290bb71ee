"""What the documents say must be there: messages, files, commands."""

import re
import shlex
import subprocess
from itertools import takewhile
from pathlib import Path

import pytest

from harness.batch import batch_options as batch
from harness.campaign import campaign_options as campaign
from harness.cli.door import VERBS
from harness.compliance import compliance_options as compliance
from harness.config import run_options
from harness.endpoints import endpoints_options as endpoints
from harness.grading import evaluation_options as grading
from harness.peak import peak_options as peak
from harness.report import report_options as pages
from harness.rows import eval_options
from harness.submission import submission_options as submission
from scripts import write_cli_reference, write_run_json_reference
from sut.doctor import doctor_options
from tests.documents.pages import PAGES, blocks, name_of
from tests.runs import ROOT

SOURCES = [
    *(path for tree in ("harness", "sut") for path in (ROOT / tree).rglob("*.py")),
    ROOT / "mlperf",
    *ROOT.glob("*.sh"),
    *(path for folder in ("sglang", "vllm", "pytorch") for path in (ROOT / folder).glob("*.sh")),
]


def sources():
    """All text of the programs, with literals that are broken over two lines joined."""
    text = "\n".join(path.read_text() for path in SOURCES)
    return re.sub(r'"\s*\n\s*f?"', "", text) + "No space left on device"


def test_every_message_of_the_troubleshooting_page_exists():
    page = (ROOT / "docs/guide/troubleshooting.md").read_text()
    text = sources()
    cells = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `")]
    quoted = [part for cell in cells for part in re.findall("`([^`]+)`", cell)]
    assert len(quoted) > len(cells) > 20
    assert [part for part in quoted if part not in text and not found_with_values(part, text)] == []


def found_with_values(part, text):
    """``answered 503, expected 200`` is ``answered {status}, expected 200`` in the source."""
    pattern = re.sub(r"\d+", r"(?:\\d+|\\{[^}]*\\})", re.escape(part))
    return re.search(pattern, text) is not None


def links(page):
    """Path and anchor of each link that stays in the repository."""
    return re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text())


def anchors(page):
    """The headings of a page as GitHub names them."""
    outside_code = re.sub(r"(?ms)^```.*?^```", "", page.read_text())
    headings = re.findall(r"(?m)^#+ (.+)$", outside_code)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for path, anchor in links(page):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_pages_named_elsewhere_exist():
    """In messages, comments, scripts and in commands of the documents."""
    trees = ("harness", "sut", "tests", "benchmarks")
    code = [path for tree in trees for path in (ROOT / tree).rglob("*.py")]
    scripts = [*ROOT.glob("*.sh"), *(ROOT / "datasets").glob("*.sh"), *(ROOT / "sglang").glob("*.sh")]
    named = {
        name
        for path in (*code, *scripts, *PAGES)
        for name in re.findall(r"(?<![\w/])docs/[\w/]+\.md", path.read_text())
    }
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


LEFT_BY_RUNS = ("benchmarks/results", "configs/submission/rehearsal")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_named_on_a_page_exist(page):
    """Below the folders of the code; security.md leaves ``tests/`` out."""
    trees = "benchmarks|configs|datasets|harness|pytorch|scripts|sglang|sut|tests|vllm"
    named = re.findall(rf"`((?:{trees})/[\w./-]+)`", page.read_text())
    ours = [name for name in named if not name.startswith(LEFT_BY_RUNS)]
    assert [name for name in ours if not any((ROOT / top / name).exists() for top in ("", "tests"))] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_name_the_environment_and_one_data_folder(page):
    text = page.read_text()
    programs = "|".join(path.name for path in ROOT.glob("*.py"))
    ours = rf"(?m)(?<![\w/.-])python3? (?:{programs}|benchmarks/|-m benchmarks|-m tests)"
    assert not re.findall(ours, text)
    assert "datasets/downloads" not in text


def test_every_page_is_two_links_from_the_readme_at_most():
    reached = {ROOT / "README.md"}
    for _ in range(2):
        named = {(page.parent / path).resolve() for page in reached for path, _ in links(page) if path}
        reached |= {path for path in named if path.suffix == ".md"}
    assert set(map(Path.resolve, PAGES)) <= reached


def test_the_command_line_reference_is_current():
    text = write_cli_reference.PAGE.read_text()
    assert text == write_cli_reference.written(text), "run scripts/write_cli_reference.py"
    assert [verb for verb in VERBS if f"\n| `{verb}` | " not in text] == []
    assert "default: None" not in text


def test_the_reference_of_run_json_is_current():
    text = write_run_json_reference.PAGE.read_text()
    assert text == write_run_json_reference.written(text), "run scripts/write_run_json_reference.py"
    tables = set(re.findall(r"(?m)^## .*`(plan|servers\[\]|verdict|statistics|client_load|loadgen)`", text))
    assert len(tables) == 6


def test_the_shelves_hold_every_page():
    pages = (ROOT / "docs").rglob("*.md")
    shelves = {page.relative_to(ROOT / "docs").parts[0] for page in pages}
    assert shelves == {"guide", "reference", "design"}


PARSERS = {
    "harness.campaign": campaign.parse_options,
    "sut.doctor": doctor_options.parse_options,
    "run_mlperf.py": run_options.parse_options,
    "run_eval.py": eval_options.parse_options,
    "find_peak.py": peak.parse_options,
    "run_endpoints.py": endpoints.parse_options,
    "run_batch.py": batch.parse_options,
    "run_compliance.py": compliance.parse_options,
    "eval_accuracy.py": grading.build_accuracy_parser().parse_args,
    "eval_mlperf_accuracy.py": grading.build_parser().parse_args,
    "prepare_submission.py": submission.build_parser().parse_args,
    "report.py": pages.parse_options,
}


def commands(page):
    """Program and words of each command that a line of the page begins with; shell variables filled in."""
    text = page.read_text().replace("\\\n", " ")
    typed = r"(?m)^ *(?:\.venv/bin/python (\w+\.py)|\./mlperf (\w+))( .*)?$"
    for program, name, line in re.findall(typed, text):
        if name:
            program, command, _ = VERBS[name]
            line = f" {command}{line}"
        line = re.sub(r'"\$\(.*\)"', "http://node1:30000", line)
        line = line.replace("$s", "offline").replace("$S", "http://node1:30000").replace("$D", "data")
        words = shlex.split(line, comments=True)
        yield program, list(takewhile(lambda word: word not in (">", "||"), words))


COMMANDS = [(page, *command) for page in PAGES for command in commands(page)]


@pytest.mark.parametrize(
    ("page", "program", "words"), COMMANDS, ids=[f"{page.stem}-{program}" for page, program, _ in COMMANDS]
)
def test_commands_are_accepted(page, program, words):
    """Flags and choices of every command; files of the repository that it names exist."""
    PARSERS[program](words)
    ours = [word for word in words if word.startswith(("configs/", "datasets/"))]
    assert [word for word in ours if not (ROOT / word).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_shell_blocks_are_shell(page):
    for block in blocks(page):
        checked = subprocess.run(["bash", "-n"], input=block, text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr + block


def test_the_commands_are_found():
    assert {program for _, program, _ in COMMANDS} == set(PARSERS)
    assert len(COMMANDS) > 20
