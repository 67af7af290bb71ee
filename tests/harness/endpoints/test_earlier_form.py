"""Files of a rehearsal that another commit of the harness has left in a form that this one does not read."""

import shutil

import pytest

from harness.endpoints.point_run import read_point_run
from harness.endpoints.rehearsal_record import read_rehearsal
from harness.errors import ConfigError
from harness.record import provenance
from tests.harness.submission.building import git
from tests.kit import DATA

# Of a short rehearsal at that commit, before a set of seeds named the cohort of its publication.
RECORDED, COMMIT = DATA / "endpoints/earlier_form", "896e941bfb8fb219b0df8ad2ee4a5161f1c8a8d3"


@pytest.fixture(autouse=True)
def at_another_commit(monkeypatch, tmp_path_factory):
    checkout = tmp_path_factory.mktemp("checkout")
    git(checkout, "init", "-q")
    git(checkout, "commit", "-qm", "one", "--allow-empty")
    monkeypatch.setattr(provenance, "ROOT", checkout)


def refused(read, folder):
    with pytest.raises(ConfigError) as caught:
        read(folder)
    return str(caught.value)


@pytest.mark.parametrize(("read", "place"), [(read_rehearsal, "."), (read_point_run, "runs/r7")])
def test_the_version_that_reads_it_is_the_remedy(read, place):
    """And not the hours of its points once more."""
    message = refused(read, RECORDED / place)
    assert "`published`" in message and message.endswith(f"git checkout {COMMIT}")
    assert "remove" not in message and "--restart" not in message


def test_of_a_damaged_file_it_is_not(tmp_path):
    folder = shutil.copytree(RECORDED, tmp_path / "copy")
    for path in (folder / "rehearsal.json", folder / "runs/r7/point_run.json"):
        whole = path.read_text()
        path.write_text(whole[:-3])
        message = refused(read_rehearsal if path.parent == folder else read_point_run, path.parent)
        assert message.endswith(("--restart moves the folder aside", "so that the point is run again"))
        path.write_text(whole)


@pytest.mark.parametrize("said", [None, (COMMIT, "tree")], ids=["no git", "this commit"])
def test_where_no_other_version_is_known_the_file_is_damaged(monkeypatch, said):
    monkeypatch.setattr(provenance, "head_of", lambda root: said)
    assert refused(read_rehearsal, RECORDED).endswith("--restart moves the folder aside")
