"""Compliance runs on the embedded engine: a real model, small datasets, nothing that could be submitted."""

import pytest

from tests.harness.compliance.program import audit, run_compliance
from tests.runs import PERFORMANCE, ROOT, SAMPLES

NEW_TOKENS = 6
QUICK = ROOT / "configs/rehearsal.conf"
REFERENCE = SAMPLES / "compliance_sample.parquet"
REACHED = {
    "TEST07": "*.*.test07_accuracy_threshold = 0.0\n",
    "TEST09": f"*.*.test09_min_output_tokens = 1\n*.*.test09_max_output_tokens = {NEW_TOKENS}\n",
}


@pytest.mark.engine
@pytest.mark.parametrize("scenario", ["offline", "server"])
def test_both_tests_pass_and_fail(scenario, tmp_path):
    """They run once, with thresholds that they reach; the official ones fail on the same logs."""
    inputs = {"TEST07": REFERENCE, "TEST09": PERFORMANCE}
    words = [word for test in inputs for word in ("--input-file", f"{test}={inputs[test]}")]
    words += [f"--audit-config={test}={audit(tmp_path, test, REACHED[test])}" for test in inputs]
    done = run_compliance(
        tmp_path,
        *("--test", "all", "--scenario", scenario, "--backend", "embedded", "--non-official", *words),
        *("--user-conf", QUICK, "--max-new-tokens", NEW_TOKENS, "--output-dir", tmp_path / "out"),
    )
    assert done.code == 0, done.stdout + done.stderr
    for test in inputs:
        assert f"{test}: NOT OFFICIAL PASS: " in done.stdout
        folder = tmp_path / "out" / scenario / test
        assert len(list(folder.glob("verify_*.NOT_OFFICIAL.txt"))) == len(list(folder.glob("verify_*"))) == 1
        again = ("verify", test, "--log-dir", folder / "run", "--reference-data", REFERENCE, "--non-official")
        failed = run_compliance(tmp_path, *again)
        assert (failed.code, f"{test}: NOT OFFICIAL FAIL: " in failed.stdout) == (5, True), failed
