"""``build``: a tree from run folders of either client, and what it lacks."""

from pathlib import Path

from harness.endpoints.endpoints_options import BuildOptions
from harness.endpoints.run_folder import POINT_YAML, RUNS, TREE
from harness.endpoints.tree.build_tree import Tree, build_tree
from harness.endpoints.tree.system_file import read_system
from harness.errors import EXIT_THRESHOLD, EXIT_VALID
from harness.text import counted, labelled, show


def build(options: BuildOptions) -> int:
    """Build the tree and print what it lacks; the exit code. Raises HarnessError, OSError."""
    found = build_tree(
        options.folders,
        read_system(options.system) if options.system else None,
        options.output or beside(options.folders[0]),
        seed_sets=options.seed_sets,
        target_cohort=options.target_cohort,
    )
    show(*summary(found))
    return EXIT_THRESHOLD if found.missing else EXIT_VALID


def beside(first: Path) -> Path:
    """tree/ in the rehearsal's folder of these run folders, or beside them."""
    return first / TREE if (first / RUNS).is_dir() else first.absolute().parent / TREE


def summary(found: Tree) -> list[str]:
    """Where the tree is, what it lacks, and what it is not."""
    points = f"{counted(len(found.points), 'point')}: {', '.join(found.points)}"
    lines = [f"{found.submission}: {points}"]
    lines.append(f"{POINT_YAML} and the files of the system are in the run folders, too, for their upload")
    lines += labelled("MISSING", found.missing)
    lines += labelled("TO WRITE", found.unwritten)
    lines += labelled("WARNING", found.unwritable)
    if found.label:
        lines.append(f"{found.label}: these points are of this client, a rehearsal")
    return lines
