"""Runs of the official verification scripts of a checkout of mlcommons/inference, and their recorded output.

``python -m tests.harness.compliance.official CHECKOUT`` writes the record anew. The tests compare
with the record, and with the scripts themselves where HARNESS_MLCOMMONS_INFERENCE names a checkout.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.harness.compliance import cases
from tests.runs import ROOT

CHECKOUT = os.environ.get("HARNESS_MLCOMMONS_INFERENCE")
needs_checkout = pytest.mark.skipif(CHECKOUT is None, reason="HARNESS_MLCOMMONS_INFERENCE is not set")
RECORD = ROOT / "tests" / "data" / "compliance" / "official.json"
SUMMARY = "TEST07 Verification Summary"


def run_script(checkout: Path, test: str, folder: Path, file: str, *flags: object) -> str:
    """The text of a file that the script leaves."""
    script = checkout / "compliance" / test / "run_verification.py"
    words = [sys.executable, script, "-c", folder, "-o", folder / "out", *flags]
    subprocess.run([str(word) for word in words], cwd=folder, capture_output=True)
    return (folder / "out" / test / file).read_text()


def _test09(checkout: Path, folder: Path, name: str) -> str:
    cases.write_logs(folder, cases.lengths_log(name))
    audit = checkout / "compliance" / "TEST09" / "gpt-oss-120b" / "audit.config"
    return run_script(checkout, "TEST09", folder, "verify_output_len.txt", "--audit-config", audit)


def _test07(checkout: Path, folder: Path, name: str) -> str:
    """The summary; the score comes from our evaluator, which is pinned elsewhere."""
    right, threshold = cases.SCORES[name]
    cases.write_logs(folder, cases.answers_log(right))
    evaluator = f"{sys.executable} {ROOT}/eval_mlperf_accuracy.py --mode official"
    script = f"{evaluator} --mlperf-log {{accuracy_log}} --reference-data {cases.REFERENCE}"
    flags = ("--accuracy-script", script, "--accuracy-threshold", threshold)
    text = run_script(checkout, "TEST07", folder, "verify_accuracy.txt", *flags)
    return text[text.index(SUMMARY) :]


def _test06(checkout: Path, folder: Path, name: str) -> str:
    """The end-of-sequence token is the script's own, 2."""
    scenario, log = cases.CONSISTENCY[name]
    cases.write_logs(folder, log)
    return run_script(checkout, "TEST06", folder, "verify_accuracy.txt", "-s", scenario)


SCRIPTS: dict[str, tuple[Callable[[Path, Path, str], str], Iterable[str]]] = {
    "TEST06": (_test06, cases.CONSISTENCY),
    "TEST07": (_test07, cases.SCORES),
    "TEST09": (_test09, cases.LENGTHS),
}


def said(test: str, name: str) -> str:
    return json.loads(RECORD.read_text())[test][name]


def main(checkout: Path) -> None:
    found: dict[str, dict[str, str]] = {}
    for test, (run, names) in SCRIPTS.items():
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                found.setdefault(test, {})[name] = run(checkout, Path(folder), name)
    RECORD.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
