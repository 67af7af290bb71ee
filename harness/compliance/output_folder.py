"""The verified folder of one test, as a submission holds it: the logs, and last the verification file."""

import contextlib
import shutil
from pathlib import Path

from harness.compliance.base import ComplianceTest, TestResult
from harness.compliance.registry import TESTS
from harness.compliance.run_logs import log_file
from harness.errors import ConfigError
from harness.files import (
    ACCURACY,
    ACCURACY_LOG,
    ACCURACY_TEXT,
    DETAIL,
    PERFORMANCE,
    SUMMARY,
    atomic_write,
    unofficial,
)


def marked(text: str, pass_line: str, reasons: tuple[str, ...]) -> str:
    """The official text; with ``reasons`` why it is not official, the line that means a pass is changed."""
    if not reasons:
        return text
    text = text.replace(pass_line, f"NOT OFFICIAL {pass_line.removeprefix('TEST ')}")
    listed = [f"NOT OFFICIAL: {reason}" for reason in reasons]
    return "\n".join([*listed, "No submission may use this file.", "", text])


def write_folder(
    folder: Path, log_dir: Path, test: ComplianceTest, result: TestResult, reasons: tuple[str, ...]
) -> Path:
    """Copy the logs into ``folder`` and write the verification file; returns its path.

    ``reasons``: why the result is not official, empty if it is. The file then has another name, which no
    submission may use. An earlier verification is replaced. Raises ConfigError when the folder cannot be
    written; then nothing of it stays.
    """
    verify_file = folder / test.verify_file
    if reasons:
        verify_file = unofficial(verify_file)
    try:
        clear(folder)
        _copy(log_dir, folder / ACCURACY, (ACCURACY_LOG,))
        _copy(log_dir, folder / PERFORMANCE, (SUMMARY, DETAIL))
        if result.scorecard:
            (folder / ACCURACY / ACCURACY_TEXT).write_text(
                marked(result.scorecard, test.pass_line, reasons), encoding="utf-8"
            )
        with atomic_write(verify_file) as file:
            file.write(marked(result.verify_text, test.pass_line, reasons).encode())
    except OSError as error:
        with contextlib.suppress(OSError):
            clear(folder)
        raise ConfigError(
            f"{folder}: cannot write there: {error.strerror or error}; choose another --output-dir"
        ) from error
    return verify_file


def clear(folder: Path) -> None:
    """Remove an earlier verification, its verification file first; a run's own logs stay."""
    for stem in {Path(test.verify_file).stem for test in TESTS.values()}:
        for path in folder.glob(f"{stem}.*"):
            path.unlink()
    for name in (ACCURACY, PERFORMANCE.parent):
        shutil.rmtree(folder / name, ignore_errors=True)


def _copy(source: Path, target: Path, names: tuple[str, ...]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        if (path := log_file(source, name)).exists():
            shutil.copyfile(path, target / name)
