"""The import rules of the design: what moves a number is in sut/, harness/ knows none of it."""

import ast
import functools
import graphlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TREES = ("harness", "sut", "scripts")
SHADOWED = ("datasets", "sglang", "vllm")

# Whoever imports one of these can talk to a server.
HTTP_CLIENTS = {"httpx", "httptools", "aiohttp", "requests", "urllib3", "http", "openai", "websockets"}
SERVER_MODULES = {"mlperf_loadgen", "xllamacpp", *HTTP_CLIENTS}
ABOVE = {"run_mlperf", "run_compliance", "tests", "scripts"}
IMPORTING = ("import_module", "__import__", "run_module")
SOCKETS = {"socket", "ssl", "asyncio", "urllib.request", "socketserver", "xmlrpc", "ftplib"}


def modules(*trees):
    return sorted(path for tree in trees for path in (ROOT / tree).rglob("*.py"))


def program():
    """All modules of the project but its tests."""
    return [*sorted(ROOT.glob("*.py")), *modules(*TREES)]


def relative(path):
    return path.relative_to(ROOT).as_posix()


def outside_sut():
    return [path for path in program() if not relative(path).startswith("sut/")]


def imported_names(source, package=""):
    """Dotted names of every import, also of those inside of functions; ``from a import b`` is a.b."""
    tree = ast.parse(source)
    for node in ast.walk(tree) if any(name in source for name in IMPORTING) else statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            yield from _named_in_call(node)


def statements(node):
    """All statements in a node; an import is one, and of what is in them there is ten times as much."""
    for part in ("body", "handlers", "orelse", "finalbody", "cases"):
        for inner in getattr(node, part, ()):
            yield inner
            yield from statements(inner)


def _named_in_call(node):
    """``import_module("x")`` and ``__import__("x")``."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name in IMPORTING and node.args:
        first = node.args[0]
        yield (
            first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else "(computed)"
        )


@functools.cache
def imports(path):
    package = ".".join(path.relative_to(ROOT).parts[:-1])
    return set(imported_names(path.read_text(), package))


def offenders(paths, forbidden):
    """``file: name`` for each import of a forbidden module or of anything in it."""
    return [
        f"{relative(path)}: {name}"
        for path in paths
        for name in sorted(imports(path))
        if any(name == bad or name.startswith(f"{bad}.") for bad in forbidden)
    ]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import a.b as c, d", {"a.b", "d"}),
        ("from a.b import c as d", {"a.b.c"}),
        ("from . import x", {"pack.inner.x"}),
        ("from .. import x", {"pack.x"}),
        ("from ..y import x", {"pack.y.x"}),
        ("def f():\n    import late", {"late"}),
        ("if TYPE_CHECKING:\n    from a import b", {"a.b"}),
        (
            "class C:\n  for x in y:\n    with z:\n      import late\n  else:\n    import a",
            {"late", "a"},
        ),
        (
            "try:\n    import a\nexcept E:\n    import b\nelse:\n    import c\nfinally:\n    import d",
            set("abcd"),
        ),
        ("match x:\n    case 1:\n        import a", {"a"}),
        ('importlib.import_module("a.b")', {"a.b"}),
        ('__import__("a")', {"a"}),
        ("import_module(name)", {"(computed)"}),
        ('text = "import a"', set()),
    ],
)
def test_the_walker_sees(source, names):
    assert set(imported_names(source, "pack.inner")) == names


def test_the_walker_finds_the_project():
    found = {relative(path) for path in program()}
    assert {"run_mlperf.py", "harness/config/run_plan.py", "sut/loadgen/binding.py"} <= found


# Packages that judge what lies on disk; the program of the compliance runs is above its package.
PROGRAMS = {
    "harness/compliance/compliance_options.py",
    "harness/compliance/compliance_plan.py",
    "harness/compliance/compliance_command.py",
}
JUDGING = ("analysis", "grading", "compliance", "report", "submission")
PACKAGES = modules(*(f"harness/{folder}" for folder in JUDGING))
JUDGES = [path for path in PACKAGES if relative(path) not in PROGRAMS]
JAIL = "harness/grading/sandbox/jail/fork_server.py"
RULES = {
    "HTTP is sut's": (outside_sut, SERVER_MODULES, []),
    "LoadGen is one module's": (program, {"mlperf_loadgen"}, ["sut/loadgen/binding.py: mlperf_loadgen"]),
    "torch is the reference server's": (program, {"torch", "reference_server"}, []),
    "packages like folders of ours are nobody's": (program, set(SHADOWED), []),
    "harness knows no sut": (lambda: modules("harness"), ABOVE | {"sut"}, []),
    "sut knows nothing above it": (lambda: modules("sut"), ABOVE | {"eval_mlperf_accuracy"}, []),
    "children know no supervisor": (
        lambda: modules(
            *(f"sut/{name}" for name in ("client", "ipc", "issuers", "processes", "wire", "worker"))
        ),
        {"sut.supervisor"},
        [],
    ),
    "a curve knows no submission folder": (
        lambda: modules("harness/endpoints", "sut/endpoints"),
        {"harness.submission"},
        [],
    ),
    # A dataclass takes a millisecond of each start, a struct a fiftieth of that; --help needs no msgspec.
    "values are structs": (
        lambda: modules("harness", "sut"),
        {"dataclasses.dataclass"},
        [
            f"harness/{path}.py: dataclasses.dataclass"
            for path in ("cli/flags", "cli/parser", "config/protocol")
        ],
    ),
    # A name that is made at run time would pass all of the rules. The jail alone imports from a table: the
    # modules that solutions need and that are loaded before the fork.
    "no import is computed": (program, {"(computed)"}, [f"{JAIL}: (computed)"]),
    # Not even by way of another module of harness/. A pair of sockets passes files to the fork server; the
    # name of one that is never used holds a user id.
    "what judges knows no servers": (
        lambda: reachable(JUDGES),
        SERVER_MODULES | SOCKETS | {"sut", "harness.config.client_plan", "harness.config.run_plan"},
        [f"{JAIL}: socket", "harness/grading/sandbox/users.py: socket"],
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule):
    paths, forbidden, exceptions = RULES[rule]
    assert offenders(paths(), forbidden) == exceptions


@functools.cache
def imported_files():
    """The files of the project that each of its files imports, by name; packages stand for their __init__."""
    named = {}
    for path in [*program(), *modules("pytorch")]:
        name = relative(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        named[name] = relative(path)
    found = {}
    for path in program():
        parts = {part for name in imports(path) for part in (name, name.rpartition(".")[0])}
        found[relative(path)] = {named[part] for part in parts & named.keys()} - {relative(path)}
    return found


def circle(graph):
    """The members of a circle, or nothing."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_circle_of_files():
    assert circle(imported_files()) == []


def test_no_circle_of_packages():
    """Whoever reads a package needs to know those below it, never itself by way of them."""
    graph = {}
    for path, others in imported_files().items():
        below = {other.rpartition("/")[0] for other in others if not other.endswith("__init__.py")}
        graph.setdefault(path.rpartition("/")[0], set()).update(below)
    assert circle({package: others - {package} for package, others in graph.items()}) == []


def test_a_circle_is_found():
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


def test_the_reference_server_shadows_no_package():
    """Its folder is first on sys.path when serve.py runs."""
    found = {path.stem for path in (ROOT / "pytorch").glob("*.py")}
    found |= {path.parent.name for path in modules("pytorch")}
    assert found == {"serve", "reference_server", "pytorch"}
    assert offenders(modules("pytorch"), {"torch"})


def reachable(paths):
    """These modules and all modules of harness/ that they import, directly or not."""
    known = {relative(path).removesuffix(".py").replace("/", "."): path for path in modules("harness")}
    found, waiting = set(), list(paths)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in imports(path):
            waiting += [known[part] for part in (name, name.rpartition(".")[0]) if part in known]
    return sorted(found)


def test_reachable_follows_imports():
    reached = {relative(path) for path in reachable([ROOT / "harness/analysis/finish_run.py"])}
    report = {f"harness/analysis/{name}.py" for name in ("verdict", "statistics")}
    assert report | {"harness/record/outcome.py"} <= reached
    assert "harness/dataset/samples.py" not in reached


@pytest.mark.parametrize("tree", ["harness", "sut", "scripts", "benchmarks"])
def test_tests_mirror_the_tree(tree):
    tested = {path.parent for path in (ROOT / "tests" / tree).rglob("test_*.py")}
    assert tested
    assert [
        folder for folder in sorted(tested) if not (ROOT / folder.relative_to(ROOT / "tests")).is_dir()
    ] == []


@pytest.mark.parametrize("folder", SHADOWED)
def test_no_python_modules_in(folder):
    assert (ROOT / folder).is_dir()
    assert modules(folder) == []
    assert not list((ROOT / folder).rglob("*.so"))


PROBE = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def origin(name):
    return name + "=" + str(getattr(__import__(name), "ORIGIN", "the folder"))

if __name__ == "__main__":
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        for name in ("datasets", "sglang", "vllm"):
            print("script", origin(name))
            print("spawned", pool.submit(origin, name).result())
"""


def test_pypi_packages_win_from_a_root_script_and_a_spawned_worker(tmp_path):
    """A root with the repository's entries, and a site folder that holds regular packages of these names."""
    root, site = tmp_path / "root", tmp_path / "site"
    root.mkdir()
    for entry in ROOT.iterdir():
        if not entry.name.startswith("."):
            (root / entry.name).symlink_to(entry)
    for name in SHADOWED:
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text("ORIGIN = 'PyPI'\n")
    (root / "probe.py").write_text(PROBE)
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "probe.py"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=root, env=environment, timeout=120)
    assert done.stderr == ""
    assert sorted(done.stdout.split("\n")[:-1]) == [
        f"{where} {name}=PyPI" for where in ("script", "spawned") for name in SHADOWED
    ]
