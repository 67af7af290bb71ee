"""The pages show the matrix that the tests run."""

import re

import pytest

from tests.faults.matrix import ANSWERS, INCREMENTAL, SETTINGS
from tests.faults.scenes import SCENES
from tests.faults.tables import ANSWER_RUNS, PAGES, PORT_CELLS, RUN_FAULTS, answer_cells, written
from tests.stub import BENIGN, Fault


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_the_matrix(page):
    text = page.read_text()
    assert text == written(text, PAGES[page]()), "write it anew: python -m tests.faults.tables"


def test_no_fault_is_forgotten():
    """Each fault of the stub is in the matrix, each row has its scene, each setting its cells."""
    assert {row.fault for row in (*ANSWERS, *INCREMENTAL)} | {Fault.ONE_TOKEN} == set(Fault)
    assert sorted(row.key for row in RUN_FAULTS) == sorted(SCENES)
    assert {row.fault for row in ANSWERS if not row.named} <= BENIGN
    assert len(SETTINGS) == 6


def test_the_count_of_cells(request):
    """What the pages say is what pytest collects."""
    collected = request.session.items
    names = [item.name for item in collected if item.path.parent.name == "faults"]
    if not any(name.startswith("test_cell[") for name in names):
        pytest.skip("counted when the whole folder is collected")
    count = {
        name: len([1 for found in names if found.startswith(f"test_{name}")])
        for name in ("cell[", "cumulative", "incremental", "openai")
    }
    assert count["cell["] == sum(len(row.settings) for row in RUN_FAULTS)
    assert {name: count[name] for name in ANSWER_RUNS} == ANSWER_RUNS
    ports = re.compile("test_(too_many_are_asked_for|offline_takes_what_fits|ports_run_out)")
    assert sum(bool(ports.match(name)) for name in names) == PORT_CELLS
    assert answer_cells() > 500
