"""Flags become typed options, whose defaults are those of the flags."""

from pathlib import Path

import pytest

from harness.submission.submission_options import BuildOptions, CheckOptions, SystemOptions, parse_options
from harness.submission.tree.layout import kept_beside
from tests.harness.submission.building import one_line

TOML, TREE = Path("submission.toml"), Path("submission")
BUILD = ["build", "--submission", "submission.toml"]
CASES = [
    (BUILD, BuildOptions(submission=TOML)),
    ([*BUILD, *(2 * ["--scenario", "server"])], BuildOptions(submission=TOML, scenario=("server",))),
    (
        [*BUILD, "--division", "open", "--force", "--servers-moved"],
        BuildOptions(submission=TOML, division="open", force=True, servers_moved=True),
    ),
    (["check"], CheckOptions(tree=TREE)),
    (["check", "rehearsal"], CheckOptions(tree=Path("rehearsal"))),
    (["check", "submission", "--round", "v6.0"], CheckOptions(tree=TREE, round="v6.0")),
    (["check", "submission", "--csv", "a.csv"], CheckOptions(tree=TREE, csv=Path("a.csv"))),
    (["system"], SystemOptions()),
    (["system", "--submission", "submission.toml"], SystemOptions(submission=TOML)),
]


@pytest.mark.parametrize(("argv", "options"), CASES)
def test_options(argv, options):
    assert parse_options(argv) == options


@pytest.mark.parametrize(
    ("words", "tree"), [([], "submission"), (["--rehearsal"], "rehearsal"), (["--output", "a"], "a")]
)
def test_the_folder_that_is_built_where_none_is_named(words, tree):
    assert parse_options([*BUILD, *words]).tree == Path(tree)


@pytest.mark.parametrize(
    ("given", "kept"), [("a", "a.kept"), (".", "{here}.kept"), ("..", "{here.parent}.kept")]
)
def test_a_folder_without_a_name_has_one_beside_it_too(given, kept, tmp_path, monkeypatch):
    """A build into the working folder ended with a traceback, and a check of .. saw no run.json."""
    monkeypatch.chdir(tmp_path)
    assert kept_beside(Path(given)) == Path(kept.format(here=tmp_path.resolve()))


@pytest.mark.parametrize("argv", [[], ["build"], ["check", ""], ["check", "a", "--csv", ""]])
def test_wrong_usage_is_exit_2(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_options(argv)
    assert ended.value.code == 2
    assert one_line(capsys)
