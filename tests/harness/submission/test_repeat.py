"""A README repeats its runs: its commands, as they stand there, out of src/ on the embedded engine."""

import json
import re
import subprocess

import pytest

from harness.files import ACCURACY_LOG, SUMMARY
from tests.harness.submission.building import run_program, write_info
from tests.runs import ACCURACY, PERFORMANCE, ROOT

pytestmark = pytest.mark.engine
CONF = "*.Offline.target_qps = {}\n*.Offline.min_duration = 0\n*.Offline.min_query_count = 8\n"
FEW = ("--backend", "embedded", "--max-new-tokens", 6, "--scenario", "offline", "--max-samples", 8)


@pytest.fixture
def readme(tmp_path):
    """Of a small submission to the open division."""
    (tmp_path / "one.conf").write_text(CONF.format(5))
    (tmp_path / "two.conf").write_text(CONF.format(50))
    for conf, file, *more in (("one.conf", PERFORMANCE), ("two.conf", ACCURACY, "--accuracy")):
        words = (*FEW, *more, "--input-file", file, "--user-conf", conf, "--output-dir", "results")
        run_program(tmp_path, "run_mlperf.py", *words)
    grade(tmp_path, tmp_path / "results/offline/accuracy", "--reference-data", ACCURACY)
    info = write_info(tmp_path)
    program = [ROOT / ".venv/bin/python", ROOT / "prepare_submission.py", "build", "--submission", info]
    words = ["--results", "results", "--division", "open", "--scenario", "offline"]
    done = subprocess.run([*map(str, program), *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode in (0, 5), done.stderr
    return tmp_path / "submission/open/MyOrg/results/made_up/gpt-oss-120b/Offline/README.md"


def grade(folder, run, *words):
    command = [
        ROOT / ".venv/bin/python",
        ROOT / "eval_mlperf_accuracy.py",
        "--mlperf-log",
        run / ACCURACY_LOG,
        *words,
    ]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=folder)
    (run / "accuracy.txt").write_text(done.stdout)


def test_the_commands_repeat_the_runs(readme, tmp_path):
    text = readme.read_text()
    script = "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL))
    script = script.replace("/tmp/harness", str(tmp_path / "harness"))
    script = script.replace("./setup.sh", f"ln -s {ROOT}/.venv .venv")
    script = re.sub("data=data .*", f"data={PERFORMANCE.parent}", script)
    done = subprocess.run(["bash", "-e", "-c", script], capture_output=True, text=True, cwd=readme.parent)
    assert done.returncode in (0, 5), (
        script,
        done.stdout,
        done.stderr,
    )  # a few samples may be below the target
    again, first = tmp_path / "harness/results/offline", tmp_path / "results/offline"
    for run in ("performance", "accuracy"):
        assert "No errors encountered" in (again / run / SUMMARY).read_text()
        assert (again / run / "user.conf").read_bytes() == (first / run / "user.conf").read_bytes()
    logs = [json.loads((folder / "accuracy" / ACCURACY_LOG).read_text()) for folder in (first, again)]
    assert [sorted(row["qsl_idx"] for row in log) for log in logs] == [list(range(8))] * 2
    assert (again / "accuracy/accuracy.txt").read_text().splitlines()[0]
