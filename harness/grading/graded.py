"""One sample after grading: what was asked, what was logged, and both verdicts."""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.grading.harmony import HarmonyOutput
from harness.grading.references import Reference
from harness.grading.verdict import Mode, Reason, Verdict, unanswered
from harness.loadgen_logs.accuracy_log import LogEntry


@dataclass(frozen=True, slots=True)
class Logged:
    """What the log holds of one sample: ``tokens`` is the OSL; offset and size locate the entry, in bytes.

    ``defect`` is EMPTY, LOOPING, TRUNCATED or None for an output that ended by itself.
    """

    seq_id: int
    tokens: int
    defect: Reason | None
    has_final: bool
    offset: int
    size: int

    @classmethod
    def of(cls, entry: LogEntry, output: HarmonyOutput) -> "Logged":
        """The facts of an entry, without its tokens."""
        state = (output.defect, output.has_final)
        return cls(entry.seq_id, len(entry.token_ids), *state, entry.offset, entry.size)

    @property
    def truncated(self) -> bool:
        """Whether the token limit ended it."""
        return self.defect in (Reason.TRUNCATED, Reason.LOOPING)


@dataclass(frozen=True, slots=True)
class Graded:
    """``logged`` is None for a sample that the log lacks. ``verdicts`` has the modes that were asked for."""

    qsl_idx: int
    reference: Reference
    logged: Logged | None
    verdicts: Mapping[Mode, Verdict]

    @property
    def disagrees(self) -> bool:
        """Whether the two modes differ on right or wrong."""
        return len({verdict.correct for verdict in self.verdicts.values()}) > 1


def absent(qsl_idx: int, reference: Reference, modes: tuple[Mode, ...]) -> Graded:
    """A sample without an entry: wrong in every mode."""
    return Graded(qsl_idx, reference, None, dict.fromkeys(modes, unanswered(Reason.MISSING)))
