"""The sections of a first run in their order: the GPU first, which may be lent, then the client's cores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.gpu import section_commands as commands
from benchmarks.gpu import section_figures as figures
from benchmarks.gpu.section_commands import Site
from harness.errors import EXIT_THRESHOLD, EXIT_VALID

SERVER = "serve"
# Random weights answer no question, and end no answer: that the score and TEST09 are made is what counts.
_MADE = (EXIT_VALID, EXIT_THRESHOLD)


@dataclass(frozen=True)
class Section:
    """One command with its figures; the server, which stays up for others, has no ``words``."""

    name: str
    question: str
    expected_s: float
    """it is not begun with less time left"""
    limit_s: float
    figures: figures.Reader
    words: Callable[[Site], Sequence[object]] | None = None
    needs_server: bool = False
    passed: tuple[int, ...] = (EXIT_VALID,)
    """exit codes of a section that is ok"""


def sections() -> tuple[Section, ...]:
    """All sections; together they are expected to take 18 minutes on a GPU node."""
    return (
        Section("doctor", "Is this machine fit for runs?", 15, 120, figures.doctor, commands.doctor),
        Section(SERVER, "Does the server start with random weights?", 60, 300, figures.server),
        _asked("offline", "What throughput, at what power and clocks?", 60, 240, commands.offline),
        _asked("server", "What times, at 0.7 of Offline's rate?", 80, 240, commands.server_run),
        _asked("accuracy", "Does an accuracy run end with every answer?", 45, 240, commands.accuracy),
        Section("score", "Is it scored (at 0)?", 10, 120, figures.score, commands.score, passed=_MADE),
        _asked("test09", "Is TEST09 run and verified (as failed)?", 60, 240, commands.test09, passed=_MADE),
        _asked("peak", "Does a search end?", 160, 300, commands.peak, figures.peak),
        Section("pages", "Are there pages to look at?", 5, 60, figures.pages, commands.pages),
        Section(
            *("client_capacity", "What does one core of client carry?", 120, 300),
            *(figures.client_capacity, commands.client_capacity),
        ),
        Section(
            *("client_workers", "How does that grow with more of them?", 60, 200),
            *(figures.client_workers, commands.client_workers),
        ),
        Section(
            *("timing_truth", "How wrong are the measured times?", 80, 200),
            *(figures.timing_truth, commands.timing_truth),
        ),
        _load("72-gpu", 170),
        _load("512-gpu", 150),
    )


def _asked(
    name: str,
    question: str,
    expected_s: float,
    limit_s: float,
    words: Callable[[Site], Sequence[object]],
    reader: figures.Reader = figures.run,
    passed: tuple[int, ...] = (EXIT_VALID,),
) -> Section:
    return Section(name, question, expected_s, limit_s, reader, words, True, passed)


def _load(load: str, expected_s: float) -> Section:
    return Section(
        name=f"record_load_{load}",
        question=f"Does this machine carry the heaviest submitted load of {load.removesuffix('-gpu')} GPUs?",
        expected_s=expected_s,
        limit_s=300,
        figures=figures.record_load(load),
        words=lambda site: commands.record_load(site, load),
    )
