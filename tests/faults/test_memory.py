"""Too little memory from the start: wherever it runs out, the program says so in one line and ends."""

import resource

import pytest

from tests.faults.going import Scene, alive, going, wait_until
from tests.faults.matrix import SERVER

LIMITS_MB = (340, 400, 450, 480, 540, 600)


@pytest.mark.parametrize(
    "limit", [pytest.param(mb, marks=() if mb == LIMITS_MB[2] else pytest.mark.engine) for mb in LIMITS_MB]
)
def test_little_memory(limit, tmp_path):
    """What the limit leaves depends on the machine's libraries: the run may even come to its end."""
    size = limit << 20
    scene = Scene(at_once=True, preexec=lambda: resource.setrlimit(resource.RLIMIT_AS, (size, size)))
    with going(tmp_path, SERVER, scene) as run:
        ended = run.end(40)
        assert "Traceback" not in ended.stderr
        if ended.code != 0:
            assert ended.code in (2, 3, 4)
            assert "run_mlperf.py: error: " in ended.stderr or "Result: INVALID" in ended.stdout
        run.family()
        wait_until(lambda: not alive(run.seen), 3)
