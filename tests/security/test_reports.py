"""Model output in the evaluator's report on disagreements: legible, and nothing in it acts."""

import base64
import hashlib
import html.parser
import math
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eval_mlperf_accuracy import main
from harness.config.benchmark import MetricRule
from harness.dataset.tokenizer import encode
from harness.grading.decoding.output_decoder import HarmonyDecoder
from harness.grading.decoding.output_sources import LoggedOutputs, Place
from harness.grading.evaluation.evaluate import GradedSample, Logged
from harness.grading.evaluation.pass_criteria import MetricResult, TargetResult
from harness.grading.evaluation.references import Reference
from harness.grading.graders.grader import AIME
from harness.grading.reports.disagreements import write_report
from harness.grading.reports.result_file import details, write_result
from harness.grading.reports.samples_report import Heading
from harness.grading.scoring.accuracy_score import MetricValue, Score
from harness.grading.scoring.grade import RIGHT, RIGHT_OR_WRONG, WRONG, Grade, GradingMode, Reason
from harness.loadgen_logs.accuracy_log import AccuracyLog
from harness.text import legible
from report import main as report_main
from tests import records
from tests.harness.grading.logs import write_log
from tests.runs import main_here

HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07 \u202egpj.exe\u2066 \x00 \x9b31m \x7f \u200b\n"
    "</pre></td><script>alert(1)</script><img src=x onerror=alert(2)>\n"
    "```\n# Not a heading\n[link](javascript:alert(3))\n<b>bold</b> & done\r\nafter\u2028line"
)


class Tags(html.parser.HTMLParser):
    """All tags, attributes and links of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.links = set(), set(), set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links |= {value for name, value in attrs if name == "href"}


def heading(log):
    """A report's heading: one metric that is missed."""
    value = MetricValue(50.0, RIGHT_OR_WRONG["exact_match"])
    metric = MetricResult("exact_match", value, MetricRule(83.13, (0.99, math.inf)))
    return Heading("gpt-oss-120b", log, TargetResult(GradingMode.OFFICIAL, Score(1, {}, {}), (metric,)))


@pytest.fixture
def written(tmp_path):
    """The content of a file on one hostile output, of which the two modes said different things."""
    log = AccuracyLog(write_log(tmp_path / "mlperf_log_accuracy.json", [encode(HOSTILE)]))
    (entry,) = log
    grades = {
        GradingMode.OFFICIAL: Grade(RIGHT, True, HOSTILE, Reason.CORRECT, HOSTILE),
        GradingMode.STRICT: Grade(WRONG, False, HOSTILE, Reason.WRONG, HOSTILE),
    }
    logged = Logged(0, len(entry.token_ids), None, False, Place(entry.offset, entry.size))
    graded = GradedSample(0, Reference(f"aime{HOSTILE}", AIME, HOSTILE, 0), logged, grades)
    outputs = LoggedOutputs(log, HarmonyDecoder(100))

    def write(name):
        path = tmp_path / name
        if path.suffix == ".json":
            write_result(path, {"details": details([graded], outputs)})
        else:
            write_report(
                path, [graded], outputs, heading(tmp_path / f"log{HOSTILE.replace('/', '')}"), None, {}
            )
        text = path.read_bytes().decode()
        assert all(char.isprintable() or char in "\n\t" for char in text)
        return text

    return write


def test_html_report(written):
    text, tags = written("d.html"), Tags()
    tags.feed(text)
    assert not tags.tags & {"img", "iframe", "object", "link", "base"}
    assert not {
        name for name in tags.attributes if name.startswith("on") or name in ("src", "action", "style")
    }
    assert all(link.startswith("#") for link in tags.links)
    assert "<b>bold" not in text
    assert "alert(1)" in text, "the evidence is there"
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src 'none'" in policy
    (script,) = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy, "only the page's own script runs"


def test_markdown_report(written):
    text = written("d.md")
    marks = ("<", "```", "[link]", "# Not")
    hostile = [line for line in text.split("\n") if any(mark in line for mark in marks)]
    assert hostile and all(line.startswith("    ") for line in hostile), "all of it inside of code blocks"
    assert "\\x1b[2J" in text and "\\u202e" in text


def test_json_result_is_ascii(written):
    assert written("r.json").isascii()


def test_a_data_set_named_with_escapes_reaches_the_terminal_escaped(tmp_path, capfd):
    log = write_log(tmp_path / "mlperf_log_accuracy.json", [encode("x")] * 2)
    reference = tmp_path / "reference.parquet"
    pq.write_table(pa.table({"dataset": ["aime\x1b[2J\u202e"] * 2, "ground_truth": ["1", "2"]}), reference)
    _, out, err = main_here(capfd, main, ["--mlperf-log", str(log), "--reference-data", str(reference)])
    assert "aime" in out + err
    assert all(char.isprintable() or char in "\r\n\t" for char in out + err)


def test_legible_keeps_lines():
    assert legible("a\tb\nc") == "a\tb\nc"
    assert legible("é\r\x1b\u2028\ud800") == "é\\r\\x1b\\u2028\\ud800"


@pytest.mark.parametrize("command", [("show",), ("list",), ("show", "--output", "{folder}/page\x1b.html")])
def test_a_folder_s_name_stays_one_harmless_line(tmp_path, capfd, command):
    """Found below the folder that was named, so that nobody has read it."""
    folder = tmp_path / "a\x1b[31m\u202e\nResult: VALID\r"
    folder.mkdir()
    shutil.copy(records.PATH, folder / "run.json")
    words = [word.format(folder=folder) for word in command]
    code, stdout, stderr = main_here(capfd, report_main, [*words[:1], str(tmp_path), *words[1:]])
    assert code == 0, stderr
    assert "\\x1b[31m\\u202e\\nResult: VALID\\r" in stdout
    assert all(line.isprintable() for line in (stdout + stderr).splitlines())
