"""Tables of outputs in place of a log: the same score by ids, upstream's by text; eval_accuracy.py."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eval_accuracy import main as accuracy_main
from eval_mlperf_accuracy import main
from harness.config.benchmark import load_benchmark
from harness.dataset import tokenizer
from harness.dataset.extended_table import NewColumn, write_extended
from harness.dataset.table import open_table
from harness.grading.decoding.output_sources import settings_of
from harness.grading.evaluation_options import parse_options
from tests.harness.grading.conftest import evaluated
from tests.harness.grading.logs import array, entry, harmony_ids, write_log
from tests.harness.grading.samples import REFERENCE, references, right_answer

ROWS = 60  # AIME and the first of GPQA: no programs
WRONG = set(range(10, 40))
COLUMNS = ["model_output", "tok_model_output", "tok_model_output_len"]


def outputs() -> list[list[int]]:
    return [
        harmony_ids("I do not know." if index in WRONG else right_answer(row))
        for index, row in enumerate(references()[:ROWS])
    ]


def table(path: Path, columns: list[str], missing: frozenset[int] = frozenset()) -> Path:
    """The sample rows with these columns of outputs, as run_eval.py writes them."""
    ids = outputs()
    cells = {
        "model_output": ("string", lambda row: tokenizer.decode(ids[row])),
        "tok_model_output": ("ids", lambda row: np.array(ids[row], np.int32)),
        "tok_model_output_len": ("int32", lambda row: len(ids[row])),
    }

    def column(name: str) -> NewColumn:
        kind, cell = cells[name]
        return NewColumn(name, kind, lambda row: None if row in missing else cell(row))

    failure = NewColumn("failure", "string", lambda row: "timeout: too late" if row in missing else None)
    write_extended(path, open_table(REFERENCE), range(ROWS), [*map(column, columns), failure])
    return path


def refuse(*words: object, program=main) -> str:
    code, _, stderr = evaluated(*words, program=program)
    assert code == 2, stderr
    (line,) = stderr.splitlines()
    return line


def test_verbose_without_a_file_to_write_to_is_a_warning(tmp_path):
    words = ["--mlperf-log", str(tmp_path / "log.json"), "--verbose"]
    (warning,) = parse_options(words).warnings
    assert warning.startswith("--verbose has no effect without --output FILE")
    assert not parse_options([*words, "--output", "r.json"]).warnings


@pytest.mark.parametrize("suffix", ["parquet", "pkl"])
@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS[1:2], [COLUMNS[0], COLUMNS[2]]], ids="+".join)
def test_a_table_scores_as_its_log(columns, suffix, tmp_path):
    path = table(tmp_path / f"outputs.{suffix}", columns)
    log = write_log(tmp_path / "log.json", outputs())
    from_log = evaluated("--mlperf-log", log, "--reference-data", path)
    from_table = evaluated("--mlperf-log", path, "--output-file", tmp_path / "r.json", "--verbose")
    assert from_table[:2] == from_log[:2]
    assert from_table[0] == 5
    assert ("graded by the column model_output" in from_table[2]) == ("tok_model_output" not in columns)
    details = json.loads((tmp_path / "r.json").read_text())["detailed_results"]
    assert {row["qsl_idx"] for row in details if not row["is_correct"]} == WRONG
    assert details[3]["model_output_preview"].startswith("<|channel|>analysis")


def test_a_table_has_its_true_answers_whatever_is_downloaded(tmp_path, nothing_downloaded):
    official = tmp_path / "data" / load_benchmark("gpt-oss-120b").dataset(accuracy=True).file
    official.parent.mkdir(parents=True)
    pq.write_table(pq.read_table(REFERENCE).slice(1, ROWS), official)
    code, _, stderr = evaluated("--mlperf-log", table(tmp_path / "outputs.parquet", COLUMNS))
    assert (code, "true answers" in stderr) == (5, False)
    assert "absent.parquet" in refuse("--mlperf-log", tmp_path / "absent.parquet")


def test_references_with_other_answers_than_the_table_has_make_no_score(tmp_path):
    path, given = table(tmp_path / "outputs.parquet", COLUMNS), tmp_path / "given.parquet"
    rows = pq.read_table(path).select(["dataset", "ground_truth"])
    words = ("--mlperf-log", path, "--reference-data", given)
    pq.write_table(rows, given)
    right = evaluated(*words)
    pq.write_table(rows.take([8, *range(1, 8), 0, *range(9, ROWS)]), given)
    swapped = evaluated(*words)
    said = f"WARNING: {given} has other true answers than {path} itself: row 0 has another true answer, as 2 "
    assert (right[0], said in right[2]) == (5, False)
    assert (swapped[0], swapped[2].startswith(said), said in swapped[1]) == (4, True, True)


@pytest.mark.parametrize("columns", [COLUMNS, [COLUMNS[0], COLUMNS[2]]], ids="+".join)
def test_rows_that_failed_are_named_and_count_as_empty(columns, tmp_path):
    path = table(tmp_path / "outputs.parquet", columns, frozenset({2, 7}))
    saved = tmp_path / "saved.parquet"
    _, stdout, stderr = evaluated("--mlperf-log", path, "--save-outputs", saved)
    assert "2 rows failed: 2 (timeout: too late), 7 (timeout: too late)" in stderr
    assert "2 rows without an output, counted as empty, score 0: 2, 7" in stdout
    assert f"Total samples evaluated: {ROWS}" in stdout
    rows = pq.read_table(saved).to_pylist()
    assert [row["qsl_idx"] for row in rows] == [index for index in range(ROWS) if index not in (2, 7)]
    assert (rows[0]["output_token_ids"] is None) == ("tok_model_output" not in columns)


def test_eval_accuracy_writes_the_rows_with_their_grades(tmp_path):
    path = table(tmp_path / "outputs.parquet", COLUMNS, frozenset({2}))
    code, stdout, stderr = evaluated(
        "--benchmark", "gpt-oss-120b", "--input-file", path, "--verbose", program=accuracy_main
    )
    assert (code, "'exact_match':" in stdout) == (5, True)
    assert "WARNING: --verbose has no effect" in stderr
    rows = pq.read_table(tmp_path / "outputs_evaluated.parquet").to_pylist()
    assert list(rows[0]) == [*pq.read_table(path).column_names, "extracted_answer", "prompt_accuracy"]
    expected = [0.0 if i == 2 or i in WRONG else 100.0 for i in range(ROWS)]
    assert [row["prompt_accuracy"] for row in rows] == expected
    assert rows[0]["extracted_answer"] == rows[0]["ground_truth"]


def test_eval_accuracy_takes_a_log_with_its_dataset(tmp_path, nothing_downloaded):
    dataset = tmp_path / "dataset.pkl"
    pd.read_parquet(REFERENCE).head(ROWS).to_pickle(dataset)
    log = tmp_path / "mlperf_log_accuracy.json"
    log.write_text(array(entry(i, ids) for i, ids in enumerate(outputs()) if i != 4))
    words = ("--benchmark", "gpt-oss-120b", "--input-file", log)
    assert "--dataset-file" in refuse(*words, program=accuracy_main)
    assert evaluated(*words, "--dataset-file", dataset, program=accuracy_main).code == 5
    frame = pd.read_pickle(tmp_path / "mlperf_log_accuracy_evaluated.pkl")
    assert frame["tok_model_output"][3] == outputs()[3]
    assert frame["prompt_accuracy"].isna().tolist() == [index == 4 for index in range(ROWS)]


# Upstream's extraction: the whole text is read, thoughts included; MMLU-Pro takes a letter that stands alone.
R1 = [
    ("gpqa", "B", "<think>ANSWER: A</think>\n**Answer:** ANSWER: B", "B", 100.0),
    ("gpqa", "B", "The answer is B.", None, 0.0),
    ("mmlu_pro", "J", "so J it is", "J", 100.0),
    ("aime1983", 42, "<think>x</think> \\boxed{42}", "42", 100.0),
    ("aime1983", 42, "Answer: 41", "41", 0.0),
]


def frame_of_r1(lengths, **more):
    names, truths, texts = ([row[place] for row in R1] for place in range(3))
    cells = {"dataset": names, "ground_truth": list(map(str, truths)), "model_output": texts, **more}
    return pd.DataFrame(cells | {"tok_model_output_len": lengths})


@pytest.mark.parametrize("path", ["outputs.pkl", "outputs.parquet"])
def test_a_pickle_of_upstream_is_graded_by_its_text(path, tmp_path):
    """No tokenizer is needed, and none is here."""
    frame = frame_of_r1(range(2, 7), tok_model_output=[[1000 + i, 1] for i in range(5)])
    frame.to_pickle(tmp_path / path) if path.endswith("pkl") else frame.to_parquet(tmp_path / path)
    code, stdout, stderr = evaluated("--input-file", tmp_path / path, program=accuracy_main)
    assert (code, "graded by the column model_output" in stderr) == (5, True), stderr
    assert "60.0" in stdout  # 3 of 5
    rows = open_table(tmp_path / path.replace(".", "_evaluated."))
    assert rows.column("extracted_answer") == [row[3] for row in R1]
    assert rows.column("prompt_accuracy") == [row[4] for row in R1]


NULL = None
# What upstream's process_dataframe and print_evaluation_results print for R1 with these cells in row 0.
UPSTREAM = [
    ({"model_output": NULL}, 40.0, 4.0, 5),
    ({"model_output": float("nan")}, 40.0, 4.0, 5),
    ({"model_output": ""}, 40.0, 4.0, 5),
    ({"model_output": NULL, "tok_model_output_len": NULL}, 40.0, 4.5, 5),
    ({"tok_model_output_len": NULL}, 60.0, 4.5, 5),
]


@pytest.mark.parametrize("suffix", ["pkl", "parquet"])
@pytest.mark.parametrize(("cells", "score", "tokens", "number"), UPSTREAM, ids=lambda value: str(value)[:60])
def test_a_row_without_an_output_stays_in_the_mean(cells, score, tokens, number, suffix, tmp_path):
    """As upstream, which reads None as the empty text, and leaves a missing length out of the mean."""
    frame = frame_of_r1(range(2, 7)).astype(object)
    for name, cell in cells.items():
        frame.at[0, name] = cell
    path = tmp_path / f"outputs.{suffix}"
    frame.to_pickle(path) if suffix == "pkl" else frame.to_parquet(path)
    _, stdout, _ = evaluated("--input-file", path, program=accuracy_main)
    expected = {"exact_match": score, "tokens_per_sample": tokens, "num-samples": number}
    assert stdout.splitlines()[-1] == repr(expected)


@pytest.mark.parametrize("length", [float("inf"), 1e300, -1.0, 0.5])
def test_a_length_that_is_none_is_one_line(length, tmp_path):
    frame_of_r1([length] * len(R1)).to_parquet(tmp_path / "outputs.parquet")
    code, _, stderr = evaluated("--input-file", tmp_path / "outputs.parquet", program=accuracy_main)
    assert code == 2 and f"row 0: tok_model_output_len is {length!r}, expected a number of tokens" in stderr


def test_a_text_without_ids_is_graded_and_ids_without_a_text_are_not(tmp_path):
    """Upstream reads the texts alone."""
    whole = table(tmp_path / "whole.parquet", COLUMNS)
    for column, row, right in (("tok_model_output", 3, 1), ("model_output", 3, 0)):
        frame = pd.read_parquet(whole)
        frame[column] = [None if index == row else cell for index, cell in enumerate(frame[column])]
        frame.to_parquet(tmp_path / "changed.parquet")
        _, stdout, stderr = evaluated("--mlperf-log", tmp_path / "changed.parquet", "--mode", "official")
        assert f"({ROWS - len(WRONG) - 1 + right}/{ROWS})" in stdout
        assert ("as row 3 has a text there and no tok_model_output" in stderr) is bool(right)


def columns(**cells):
    row = {"dataset": ["aime25"], "ground_truth": ["1"], "tok_model_output": [[5]]}
    return pa.table({name: value for name, value in (row | cells).items() if value is not None})


def test_ids_without_texts_need_the_tokenizer(tmp_path):
    """As run_eval.py writes rows where no tokenizer is."""
    cells = {"dataset": ["gpqa"], "ground_truth": ["A"], "model_output": [None], "tok_model_output_len": [1]}
    pq.write_table(columns(**cells), tmp_path / "outputs.parquet")
    assert "--tokenizer" in refuse("--input-file", tmp_path / "outputs.parquet", program=accuracy_main)


class Attack:
    def __reduce__(self):
        return os.system, ("touch attacked",)


TEXTS = {"tok_model_output": None, "model_output": ["x"], "tok_model_output_len": [1]}
REFUSED = [
    (columns(tok_model_output=None), "; pass mlperf_log_accuracy.json or a table of outputs"),
    (columns(tok_model_output=None, model_output=["x"]), "no column tok_model_output_len"),
    (columns(tok_model_output=["x"]), "not a list of token ids"),
    (columns(tok_model_output=[[1.5]]), "not a list of token ids"),
    (columns(tok_model_output=[[[1], [2, 3]]]), "not a list of token ids"),
    (columns(tok_model_output=[[1 << 40]]), "not a list of token ids"),
    (columns(tok_model_output=[[300_000]]), "token 300000"),
    (columns(**TEXTS | {"model_output": [3]}), "expected text"),
    (
        columns(**TEXTS | {"tok_model_output_len": [None]}),
        "is empty in every row, expected numbers",
    ),
    (columns(**TEXTS | {"tok_model_output_len": [-1]}), "number of tokens"),
    (columns(ground_truth=None), "tok_model_output; pass the accuracy dataset of gpt-oss-120b as --ref"),
    (columns(dataset=["amie25"]), "livecodebench; pass the accuracy dataset of gpt-oss-120b as --ref"),
    (columns(tok_model_output=[None], failure=["timeout"]), "no row has an output"),
    (columns(**TEXTS | {"model_output": [None], "tok_model_output_len": [None]}), "no row has an output"),
    (columns().slice(0, 0), "no rows"),
]


@pytest.mark.parametrize(("content", "words"), REFUSED, ids=lambda value: str(value)[-24:])
def test_refusals(content, words, tmp_path):
    pq.write_table(content, tmp_path / "outputs.parquet")
    assert words in refuse("--mlperf-log", tmp_path / "outputs.parquet")


def test_a_table_names_its_benchmark(tmp_path):
    path = tmp_path / "outputs.parquet"
    of_llama = columns().replace_schema_metadata({"mlperf_run_eval": '{"benchmark": "llama3.1-8b"}'})
    pq.write_table(of_llama, path)
    assert settings_of(path).benchmark == "llama3.1-8b"
    named = ("--mlperf-log", path, "--benchmark", "gpt-oss-120b")
    assert "pass --benchmark llama3.1-8b" in refuse(*named)
    assert "gpt-oss-120b" not in refuse("--mlperf-log", path)  # its rows are no answers of llama3.1-8b
    pq.write_table(columns(), path)
    assert settings_of(path).benchmark is None


@pytest.mark.parametrize("settings", ["[]", '{"benchmark": [1]}', '{"parameters": {"max_new_tokens": "9"}}'])
def test_settings_that_are_not_ours_are_none(settings, tmp_path):
    path = table(tmp_path / "outputs.parquet", COLUMNS)
    plain = evaluated("--mlperf-log", path)
    pq.write_table(pq.read_table(path).replace_schema_metadata({"mlperf_run_eval": settings}), path)
    assert evaluated("--mlperf-log", path) == plain


@pytest.mark.parametrize("role", ["outputs", "references", "tests", "record"])
@pytest.mark.parametrize(
    ("flag", "program"),
    [
        ("--output-file", accuracy_main),
        ("--output", main),
        ("--graded-rows", main),
        ("--save-outputs", main),
        ("--disagreements", main),
    ],
)
def test_a_file_that_is_read_is_not_written_to(role, flag, program, tmp_path):
    """eval_accuracy.py took its references for the place of the graded rows."""
    files = {name: table(tmp_path / f"{name}.pkl", COLUMNS) for name in ("outputs", "references", "tests")}
    files["record"] = tmp_path / "run.json"
    files["record"].write_text("{}")
    (link := tmp_path / "link.pkl").symlink_to(files[role])
    before = {path: path.read_bytes() for path in files.values()}
    words = ("--input-file", files["outputs"], "--dataset-file", files["references"])
    said = refuse(*words, "--lcb-data", files["tests"], flag, link, program=program)
    assert f"{link}: this file is the input" in said
    assert {path: path.read_bytes() for path in files.values()} == before


@pytest.mark.parametrize("held", ["an outcome of last night", "table"])
@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("--output", "score.json"),
        ("--disagreements", "page.html"),
        ("--disagreements", "page.md"),
        ("--save-outputs", "rows.pkl"),
        ("--graded-rows", "rows.pkl"),
    ],
)
def test_only_what_an_earlier_call_wrote_is_replaced(held, flag, name, tmp_path):
    """Any other file of this name was replaced, without a word."""
    outputs, place = table(tmp_path / "outputs.pkl", COLUMNS), tmp_path / name
    place.write_bytes(outputs.read_bytes() if held == "table" else held.encode())
    before = place.read_bytes()
    words = ("--mlperf-log", outputs, flag, place)
    assert f"{place}: this file is no " in refuse(*words) and place.read_bytes() == before
    place.write_bytes(b"")
    for _ in range(2):
        assert evaluated(*words)[0] == 5 and place.stat().st_size


def test_further_refusals(tmp_path, nothing_downloaded):
    path = table(tmp_path / "outputs.pkl", COLUMNS)
    given = ("--input-file", path, "--output-file")
    assert "expected .pkl" in refuse(*given, "x.csv", program=accuracy_main)
    assert "expected at least 1" in refuse("--mlperf-log", path, "--num-workers", 0)
    assert "no such file" in refuse("--input-file", tmp_path / "missing.pkl", program=accuracy_main)
    log = tmp_path / "results/gpt-oss-120b/offline/accuracy/mlperf_log_accuracy.json"
    log.parent.mkdir(parents=True)
    write_log(log, [[1]])
    other = "results/offline/accuracy/mlperf_log_accuracy.json"  # as the reference's README has it
    assert refuse("--mlperf-log", tmp_path / other, "--reference-data", REFERENCE).endswith(f"pass {log}")
    assert "60 rows" in refuse("--mlperf-log", path, "--reference-data", REFERENCE)
    assert "--reference-data" in refuse("--mlperf-log", write_log(tmp_path / "log.json", [[1]]))
    (tmp_path / "attack.pkl").write_bytes(pickle.dumps({"tok_model_output": Attack()}))
    assert "nothing was run" in refuse("--mlperf-log", tmp_path / "attack.pkl")
    assert not (tmp_path / "attacked").exists()
