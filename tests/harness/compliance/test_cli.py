"""The command line of run_compliance.py: its options, and the spellings of other harnesses."""

import pytest

from harness.compliance.compliance_options import ComplianceOptions, parse_options

NEEDED = ["--test", "TEST07", "--input-file", "a.parquet"]


def test_options_of_runs():
    options = parse_options([*NEEDED, "--test", "test09", "--audit-config", "TEST07=a", "--retries", "2"])
    assert isinstance(options, ComplianceOptions)
    assert (options.tests, options.input_files) == (("TEST07", "TEST09"), ("a.parquet",))
    assert (options.audit_configs, options.run.retries) == (("TEST07=a",), 2)
    assert (options.run.accuracy, options.run.audit_config, options.run.warnings) == (False, None, ())


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        (["--test", "ALL", "--input_file", "a"], ["--test", "all", "--input-file", "a"]),
        (["--mode", "Server", *NEEDED], ["--scenario", "server", *NEEDED]),
        (["--test", "TEST07", "--dataset-path", "a"], ["--test", "TEST07", "--input-file", "a"]),
        (["verify", "test09", "--log_dir", "a"], ["verify", "TEST09", "--log-dir", "a"]),
        (
            ["verify", "TEST09", "--log-dir", "a", "--scenario", "SingleStream"],
            ["verify", "TEST09", "--log-dir", "a", "--scenario", "single-stream"],
        ),
    ],
)
def test_spellings_of_other_harnesses(typed, ours):
    assert parse_options(typed) == parse_options(ours)


@pytest.mark.parametrize("words", [[*NEEDED, "--num-samples", "8"], [*NEEDED, "--accuracy"], ["verify"]])
def test_flags_that_a_test_decides_are_refused(words, capsys):
    with pytest.raises(SystemExit) as caught:
        parse_options(words)
    assert caught.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
