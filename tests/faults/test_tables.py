"""docs/reference/faults.md shows the matrix that the tests run."""

from tests.faults.matrix import ANSWER_RUNS, SETTINGS, WAYS
from tests.faults.scenes import SCENES
from tests.faults.tables import PAGE, RUN_FAULTS, written
from tests.stub import Fault
from tests.stub.content import CONTENT, PROMPTS
from tests.stub.transport import TRANSPORT


def test_the_page_shows_the_matrix():
    text = PAGE.read_text()
    assert text == written(text), "write it again: python -m tests.faults.tables"


def test_no_fault_is_forgotten():
    """Each fault of the stub is in the matrix and does something, each row has its scene."""
    met = {fault for way in (*WAYS, *(kind.way for kind in ANSWER_RUNS)) for fault in way.faults}
    assert {*met, Fault.ONE_TOKEN, Fault.ONE_PIECE} == set(Fault)
    assert {*PROMPTS, *CONTENT, *TRANSPORT, Fault.ONE_TOKEN, Fault.TOO_MANY_TOKENS} == set(Fault)
    assert sorted(row.key for row in RUN_FAULTS) == sorted(SCENES)
    assert len(SETTINGS) == 6
