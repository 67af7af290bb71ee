"""The requests of a point as arrays: what events.jsonl says of each, with tokens counted.

The common ground of numbers, steady state and checks, for folders of this client and of the official one.
"""

import numpy as np
import numpy.typing as npt

# One request of the performance phase, rows in the order of issue. Times are CLOCK_MONOTONIC ns.
SAMPLE = np.dtype(
    [
        ("issued_ns", "<i8"),
        ("first_ns", "<i8"),  # first fragment of visible, reasoning or tool text; 0: none, not streamed
        ("complete_ns", "<i8"),  # 0 where it never ended
        ("output_tokens", "<i8"),  # of the whole answer, through the chat template
        ("suffix_tokens", "<i8"),  # of the text after the first fragment, tokenized at once
        ("failed", "?"),
    ]
)
Samples = npt.NDArray[np.void]
"""rows of SAMPLE"""


def timed(samples: Samples) -> Samples:
    """The requests whose answer began and ended."""
    return samples[~samples["failed"] & (samples["first_ns"] > 0) & (samples["complete_ns"] > 0)]


def tpot_ns(samples: Samples) -> npt.NDArray[np.float64]:
    """TPOT of each request that has one, in ns: time and tokens after the first fragment."""
    whole = timed(samples)
    rows = whole[whole["suffix_tokens"] > 0]
    found: npt.NDArray[np.float64] = (rows["complete_ns"] - rows["first_ns"]) / rows["suffix_tokens"]
    return found


def ttft_ns(samples: Samples) -> npt.NDArray[np.int64]:
    """Issue to first fragment, of the requests that have one; also of those that failed later."""
    return _since_issue(samples, "first_ns")


def latency_ns(samples: Samples) -> npt.NDArray[np.int64]:
    """Issue to the end of the answer, of the requests that ended."""
    return _since_issue(samples, "complete_ns")


def _since_issue(samples: Samples, moment: str) -> npt.NDArray[np.int64]:
    rows = samples[samples[moment] > 0]
    found: npt.NDArray[np.int64] = rows[moment] - rows["issued_ns"]
    return found
