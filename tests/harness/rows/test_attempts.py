"""What the attempts at one file must share."""

import os

import numpy as np
import pytest
from msgspec import structs

from harness.errors import ConfigError
from harness.files import JOURNAL_DIR
from harness.record.outcome import Completion, Failure, FailureKind
from harness.record.resume import saved_answers
from harness.record.run_record import EncodedAnswers
from harness.rows.attempts import (
    EvalSettings,
    answered,
    failures,
    locked,
    next_attempt,
    read_settings,
    remove,
    write_settings,
)
from harness.rows.eval_options import parse_options
from harness.rows.eval_plan import resolve_eval_plan
from sut.worker.journal_writer import JournalWriter
from tests.kit import parameters

SETTINGS = EvalSettings(
    benchmark="gpt-oss-120b", dataset_sha256="0", skip=0, samples=3, parameters=parameters(), backend="vllm"
)


def test_a_lock_that_is_kept_until_it_is_closed_keeps_no_folder(tmp_path, monkeypatch):
    """As by NFS, under another name: the folder with it cannot be removed before."""
    folder, kept, close = tmp_path / "out.run", tmp_path / "out.run/.nfs0001", os.close

    def unlink(path, *, dir_fd=None):
        if path == "lock":
            (folder / path).rename(kept)
        else:
            os.remove(path, dir_fd=dir_fd)

    def close_lock(descriptor):
        is_lock = kept.exists() and os.fstat(descriptor).st_ino == kept.stat().st_ino
        close(descriptor)
        if is_lock:
            kept.unlink()

    monkeypatch.setattr(os, "close", close_lock)
    with locked(folder):
        write_settings(folder, SETTINGS)
        next_attempt(folder)
        with monkeypatch.context() as nfs:
            nfs.setattr(os, "unlink", unlink)
            remove(folder)
        assert [path.name for path in folder.iterdir()] == [".nfs0001"]
    assert not folder.exists()


def test_answers_of_another_form_or_tokenizer_are_not_mixed(tmp_path):
    """An earlier version asked for ids alone and kept no word of it."""
    encoded = EncodedAnswers(tokenizer="/m/tokenizer.json", tokenizer_sha256="a")
    for form in (("ids", None), ("text", encoded)):
        settled = answered(tmp_path, SETTINGS, *form)
        assert settled.answers == form[0]
        assert answered(tmp_path, settled, *form) == settled
    with pytest.raises(ConfigError, match=r"answers text, this one has ids.*--restart \(and no --resume"):
        answered(tmp_path, settled, "ids", None)
    with pytest.raises(ConfigError, match=r"tokenizer_sha256 a, this one has b.*--restart \(and no --resume"):
        answered(tmp_path, settled, "text", structs.replace(encoded, tokenizer_sha256="b"))


@pytest.mark.parametrize("content", [b"", b"{}", b'{"benchmark": "\xff"}', b'{"x":' + b"[" * 99_999])
def test_damaged_settings_are_an_error(tmp_path, content):
    assert read_settings(tmp_path) is None
    write_settings(tmp_path, SETTINGS)
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{file.name}: .*; restore it, or add --restart"):
        read_settings(tmp_path)


@pytest.mark.parametrize(
    ("source", "suffix", "more", "continues"),
    [
        ("rows.parquet", ".parquet", "", True),
        ("rows.pkl", ".pkl", "", True),
        ("rows.json", ".parquet", "--max-samples=3", True),
        ("rows.parquet", ".parquet", "--max-samples=2", False),
        ("rows.parquet", ".parquet", "--skip-samples=1", False),
    ],
)
def test_a_look_at_fewer_rows_leaves_the_answers_of_all_where_they_are(
    tmp_path, source, suffix, more, continues
):
    """A pickle's file is a pickle."""
    folder = tmp_path / f"run_eval/rows_20261128_010203{suffix}.run"
    folder.mkdir(parents=True)
    write_settings(folder, SETTINGS)
    words = ["--input-file", source, "--results", str(tmp_path), *filter(None, [more])]
    assert (resolve_eval_plan(parse_options(words)).folder == folder) is continues
    # --resume begins no other one: it is refused by what differs.
    assert resolve_eval_plan(parse_options([*words, "--resume"])).folder == folder


def test_a_row_whose_worker_died_after_its_answer_is_answered(tmp_path):
    """Of three rows one was answered, one failed, and the worker of two died."""
    attempt = next_attempt(tmp_path)
    writer = JournalWriter(attempt / JOURNAL_DIR, "0", 0, answers="of samples")
    writer.add(0, 0, 0, (1, 2, 3, 4, 5), 16, 1, Completion(np.arange(8, dtype=np.int32), "stop"))
    writer.add(1, 1, 0, (1, 2, 0, 0, 0), 16, 0, Failure(FailureKind.TIMEOUT, "no end within 5 s"))
    writer.flush()
    answers = saved_answers(tmp_path, 3)
    found = failures(attempt, [(0, 0), (2, 2)], answers)
    assert answers.keys() == {0}
    assert found == {1: (FailureKind.TIMEOUT, "no end within 5 s"), 2: (FailureKind.WORKER_LOST, "")}


def test_the_rows_are_those_of_the_accuracy_dataset_that_was_downloaded(tmp_path, nothing_downloaded):
    file = tmp_path / "data/acc/acc_eval_ref.parquet"  # as datasets/manifest.tsv has it
    file.parent.mkdir(parents=True)
    file.touch()
    assert resolve_eval_plan(parse_options(["--output", "o.parquet"])).client.input_file == file
