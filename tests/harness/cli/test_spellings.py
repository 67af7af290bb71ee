"""One flag for one thing in every program, and the spellings that mean the same."""

import re
from pathlib import Path

import pytest

from harness.batch import batch_options as prompts
from harness.cli.durations import seconds_of
from harness.compliance import compliance_options as comply
from harness.config import run_options as run
from harness.grading import evaluation_options as score
from harness.peak import peak_options as peak
from harness.report import report_options as report
from harness.rows import eval_options as rows
from harness.submission import submission_options as submit
from scripts.write_cli_reference import parsers

FILE = ["--input-file", "f.parquet"]
TEST = ["--test", "TEST07", *FILE]
LOG = ["--mlperf-log", "l.json"]

# A program with the words that it needs; the common spelling, then others of the same.
SAME = [
    (run.parse_options, FILE, "--results d", "--output-dir d", "--output_dir d", "--output-log-dir d"),
    (run.parse_options, FILE, "--wait-for-servers 1h30m", "--wait-for-servers 5400"),
    (run.parse_options, [], "--input-file f", "--dataset-path f"),
    (run.parse_options, FILE, "--audit-config a", "--audit-conf a"),
    (comply.parse_options, TEST, "--results d", "--output-dir d"),
    (comply.parse_options, ["verify", "TEST07", "--log-dir", "l"], "--results d", "--output-dir d"),
    (peak.parse_options, ["search", *FILE], "--results d", "--output-dir d"),
    (peak.parse_options, ["search", *FILE], "--budget 90m", "--budget 5400s"),
    (peak.parse_options, ["ladder", *FILE], "--seconds 1m", "--seconds 60"),
    (rows.parse_options, FILE, "--results d", "--output-dir d"),
    (rows.parse_options, FILE, "--output o.pkl", "-o o.pkl", "--output-file o.pkl", "--output_file o.pkl"),
    (rows.parse_options, FILE, "--max-samples 9", "--num-samples 9", "--total-sample-count 9"),
    (score.parse_options, LOG, "--output r.json", "-o r.json", "--output-file r.json"),
    (score.parse_options, LOG, "--num-workers 3", "--num-lcb-workers 3", "--num_lcb_workers 3"),
    (score.parse_options, LOG, "--reference-data d", "--dataset-file d"),
    (score.parse_options, LOG, "--tokenizer t", "--model-name t"),
    (score.parse_options, [], "--mlperf-log l", "--input-file l"),
    (score.parse_accuracy_options, [], "--input-file l.pkl", "--mlperf-log l.pkl"),
    (score.parse_accuracy_options, ["--input-file", "l.pkl"], "--output-file o.pkl", "--output o.pkl"),
    (score.parse_accuracy_options, ["--input-file", "l.pkl"], "--dataset-file d", "--reference-data d"),
    (submit.parse_options, ["build", "--submission", "s.toml"], "--results d", "--output-dir d"),
    (submit.parse_options, ["build", "--submission", "s.toml"], "--output d", "-o d"),
    (report.parse_options, [], "list", "list mlperf_results"),
    (prompts.parse_options, ["run", "-o", "o"], "--input i", "-i i", "--input-file i"),
    (prompts.parse_options, ["run", "-o", "o", "-i", "i"], "--positions 8", "-n 8"),
    (prompts.parse_options, ["run", "-o", "o", "-i", "i"], "--seed 8", "-s 8"),
    (prompts.parse_options, ["score", "-r", "r"], "--input i", "-i i", "--submission i", "-s i"),
    (prompts.parse_options, ["score", "-i", "i"], "--reference-data r", "-r r", "--references r"),
    (prompts.parse_options, ["score", "-m", "20b"], "--num-workers 3", "--jobs 3"),
]


# What a remedy says of another program.
OF_OTHERS = re.compile(r"'\./mlperf [^']*'|run_server\.sh --\w+")


def test_what_to_type_in_place_of_a_flag_is_a_flag_of_the_program():
    wrong = [
        (program, typed, flag)
        for program, parser in parsers()
        for typed, remedy in parser.elsewhere.items()
        for flag in re.findall(r"(?<!\w)--[a-z-]+", OF_OTHERS.sub("", remedy))
        if typed not in parser._option_string_actions and flag not in parser._option_string_actions
    ]
    assert wrong == []


@pytest.mark.parametrize(("parse", "needed", "typed", "others"), [(*row[:3], row[3:]) for row in SAME])
def test_spellings_of_one_flag(parse, needed, typed, others):
    expected = parse([*needed, *typed.split()])
    assert [parse([*needed, *other.split()]) for other in others] == [expected] * len(others)
    assert not getattr(expected, "warnings", ())


def refused(capsys, parse, *words):
    with pytest.raises(SystemExit) as caught:
        parse(list(words))
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_folder_of_a_run_stands_for_its_log(tmp_path):
    log = tmp_path / "mlperf_log_accuracy.json"
    given = [score.parse_options(["--mlperf-log", str(path)]) for path in (tmp_path, log)]
    assert given[0] == given[1]
    assert given[0].mlperf_log == log


def test_words_after_two_hyphens_are_no_flags():
    assert prompts.parse_options(["generate", "--", "--max_samples"]).prompt == "--max_samples"


def test_two_spellings_of_one_flag_are_refused(capsys):
    line = refused(capsys, rows.parse_options, *FILE, "--num-samples", "8", "--max-samples", "9")
    assert "--num-samples and --max-samples are the same flag" in line


def test_the_log_of_an_evaluation_of_another_harness_gets_our_spelling():
    given = score.parse_options(["--mlperf-accuracy-file", "l.json"])
    assert given.mlperf_log == Path("l.json")
    (warning,) = given.warnings
    assert "--mlperf-accuracy-file is read as --mlperf-log" in warning


def test_the_evaluator_of_llama_names_a_type_of_the_log(capsys):
    with pytest.raises(SystemExit):
        score.parse_options(
            ["--mlperf-accuracy-file", "l.json", "--dataset-file", "d.json", "--dtype", "int32"]
        )
    assert "--dtype: the width of ids is read from the log" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["/models/gpt-oss-120b.bin", "-m", "getp", "-i", "in", "-o", "out"],
        ["-m", "getp", "-i", "in", "-o", "out"],
        ["run", "-m", "getp", "-i", "in", "-o", "out"],
    ],
)
def test_the_modes_of_an_engine_are_commands(words, capsys):
    assert "./mlperf prompts run -i FILE -o FILE" in refused(capsys, prompts.parse_options, *words)


@pytest.mark.parametrize("command", ["search", "ladder"])
def test_a_search_measures_every_replica(command, capsys):
    line = refused(capsys, peak.parse_options, command, *FILE, "--min-replicas", "3")
    assert "every replica is measured" in line


def test_a_search_has_no_rate_for_single_stream(capsys):
    line = refused(capsys, peak.parse_options, "search", *FILE, "--scenario", "SingleStream")
    assert "expected one of offline, server, interactive" in line
    assert "--scenario single-stream measures it" in line


def test_json_goes_to_a_file_or_to_the_terminal(tmp_path):
    for words, folders, json in (
        (["d"], ["d"], None),
        (["d", "--json"], ["d"], "-"),
        (["d", "--json", "f.json"], ["d"], "f.json"),
        (["--json", str(tmp_path)], [str(tmp_path)], "-"),  # a folder is no file to write
    ):
        given = report.parse_options(["list", *words])
        assert [str(folder) for folder in given.folders] == folders
        assert given.json == (None if json is None else Path(json))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("1h", 3600), ("1h30m", 5400), (" 1.5 H", 5400), ("2min", 120)],
)
def test_durations(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", " ", "0", "-1", "1x", "m", "inf", "1e3", "٣", "9" * 400])
def test_no_durations(text):
    with pytest.raises(ValueError, match="is not a time"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("parse", "words", "meant"),
    [
        (submit.parse_options, ["chek", "folder"], "check"),
        (report.parse_options, ["lst"], "list"),
        (run.parse_options, [*FILE, "--benchmark", "gpt-oss"], "gpt-oss-120b"),
        (run.parse_options, [*FILE, "--backend", "SGLang"], "sglang"),
    ],
)
def test_a_typo_in_a_choice_names_the_one_that_is_meant(parse, words, meant, capsys):
    assert f"did you mean {meant}?" in refused(capsys, parse, *words)


def test_the_help_of_a_program_says_where_its_commands_flags_are(capsys):
    with pytest.raises(SystemExit):
        submit.parse_options(["--help"])
    assert "COMMAND --help' shows the flags of one" in " ".join(capsys.readouterr().out.split())
