"""The phase of a point in words, for the line on the console."""

from collections.abc import Callable
from time import monotonic

from harness.endpoints.curve import Curve, Point
from harness.progress.progress_line import SILENT_S, ProgressSnapshot, failed_text


class PointPhase:
    """Words for each snapshot: warm-up, pass, drain, and at once what went wrong."""

    def __init__(
        self, curve: Curve, point: Point, warm_up: int, clock: Callable[[], float] = monotonic
    ) -> None:
        self._samples = curve.samples
        self._point = point
        self._warm_up = warm_up
        self._clock = clock
        self._began: float | None = None  # when requests of the passes were first seen
        self._issued_s = 0.0
        self._drains = False

    def __call__(self, snapshot: ProgressSnapshot, lost: str = "") -> str:
        """``pass 2 of at least 4, issuing for 310 of 1200 s, 64 in flight, 5210 tokens/s``.

        ``lost``: why the point cannot become complete.
        """
        counted = snapshot.issued - self._warm_up
        ended = snapshot.completed + snapshot.failed
        if counted <= 0:
            where = f"warm-up: {min(ended, self._warm_up)} of {self._warm_up} requests have ended"
        elif self._point.offline == "dedicated":
            total = self._samples * self._point.passes
            where = f"all at once: {max(ended - self._warm_up, 0)} of {total} requests have ended"
        else:
            where = self._pass(counted, snapshot.in_flight)
        said = (f"lost: {lost} (Ctrl-C, then repeat the command)",) if lost else ()
        return ", ".join((*said, *_trouble(snapshot), where, *_load(snapshot)))

    def _pass(self, counted: int, in_flight: int) -> str:
        now = self._clock()
        self._began = now if self._began is None else self._began
        at_end = counted % self._samples == 0
        enough = counted >= self._point.passes * self._samples and self._issued_s >= self._point.issue_s
        self._drains = self._drains or (at_end and enough and in_flight < self._point.concurrency)
        if self._drains:
            return f"drain after pass {counted // self._samples}"
        self._issued_s = now - self._began
        return (
            f"pass {-(-counted // self._samples)} of at least {self._point.passes}, "
            f"issuing for {self._issued_s:.0f} of at least {self._point.issue_s:g} s"
        )


def _trouble(snapshot: ProgressSnapshot) -> tuple[str, ...]:
    is_silent = snapshot.silent_s >= SILENT_S
    silent = f"nothing has arrived for {snapshot.silent_s:.0f} s" if is_silent else ""
    return tuple(filter(None, (failed_text(snapshot), silent, snapshot.standing)))


def _load(snapshot: ProgressSnapshot) -> tuple[str, ...]:
    rate = snapshot.tokens_per_s
    held = snapshot.in_flight if snapshot.sent is None else snapshot.sent
    return (f"{held} in flight", *(() if rate is None else (f"{rate:.0f} tokens/s",)))
