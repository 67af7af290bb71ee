"""The verified folder of one test, as a submission holds it: logs, then the verification file, last."""

import contextlib
import shutil
from pathlib import Path

from harness.compliance.rules import ComplianceVerdict, TestName
from harness.compliance.run_logs import ACCURACY_LOG, DETAIL, SUMMARY, log_file
from harness.errors import ConfigError
from harness.files import replacing

_STATEMENT: dict[TestName, str] = {
    "TEST06": "verify_accuracy",
    "TEST07": "verify_accuracy",
    "TEST09": "verify_output_len",
}
_PASSING = ("TEST PASS", "TEST06 verification complete")


def statement_name(test: TestName, *, official: bool) -> str:
    """``verify_accuracy.txt``; of another name where no submission may use it."""
    return f"{_STATEMENT[test]}.txt" if official else f"{_STATEMENT[test]}.NOT_OFFICIAL.txt"


def marked(text: str, reasons: tuple[str, ...]) -> str:
    """The official text; with ``reasons`` why it is none, the words that mean a pass do not appear."""
    if not reasons:
        return text
    for words in _PASSING:
        text = text.replace(words, f"NOT OFFICIAL {words.removeprefix('TEST ')}")
    listed = [f"NOT OFFICIAL: {reason}" for reason in reasons]
    return "\n".join([*listed, "No submission may use this file.", "", text])


def write_folder(
    folder: Path, log_dir: Path, test: TestName, verdict: ComplianceVerdict, reasons: tuple[str, ...]
) -> Path:
    """Copy the logs into ``folder`` and write the verification file; returns its path.

    ``reasons`` say why the result is not official, empty if it is. What an earlier verification left here is
    replaced. Raises ConfigError when the folder cannot be written; then nothing of it stays.
    """
    statement = folder / statement_name(test, official=not reasons)
    try:
        clear(folder)
        _copy(log_dir, folder / "accuracy", (ACCURACY_LOG,))
        _copy(log_dir, folder / "performance" / "run_1", (SUMMARY, DETAIL))
        if verdict.scorecard:
            (folder / "accuracy" / "accuracy.txt").write_text(
                marked(verdict.scorecard, reasons), encoding="utf-8"
            )
        with replacing(statement) as file:
            file.write(marked(verdict.statement, reasons).encode())
    except OSError as error:
        with contextlib.suppress(OSError):
            clear(folder)
        raise ConfigError(
            f"{folder}: cannot write there: {error.strerror or error}; choose another --output-dir"
        ) from error
    return statement


def clear(folder: Path) -> None:
    """Take away an earlier verification, its statement first; a run's own logs stay."""
    for stem in set(_STATEMENT.values()):
        for path in folder.glob(f"{stem}.*"):
            path.unlink()
    for name in ("accuracy", "performance"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _copy(source: Path, target: Path, names: tuple[str, ...]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (path := log_file(source, name)).exists():
            shutil.copyfile(path, target / name)
