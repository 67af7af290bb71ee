"""Every command of the README and the guide runs as written, in order: from download to a checked submission.

Downloads, GPUs, docker and SGLang are stand-ins (``bin/``, ``packages/``, ``server.py``); the benchmark's
sizes and durations are small (``made_up.py``). Everything else is this checkout.
"""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.endpoints.checks.finding import Severity
from harness.endpoints.checks.official_checker import check_officially
from tests.documents.checkout import make_checkout
from tests.documents.pages import PAGES, README, blocks, name_of, outside_blocks

# Blocks that are not run, by a part of their text.
NOT_RUN = {
    "setup.sh --with-tests": "these are the tests themselves",
    "HARNESS_SGLANG=1": "installs 2.9 GB; tests/engines runs the same script and server",
    "install_sglang_cpu.sh": "installs 2.9 GB; tests/engines runs the same script and server",
    "setup.sh --backend pytorch": "needs torch; tests/engines runs its server with tiny models",
    "benchmarks/gpu/carry.py": "needs a second machine, with PyTorch; tests/benchmarks/gpu has its parts",
    "VLLM_CPU_KVCACHE_SPACE": "sets up vLLM's own CPU build",
    "submission_checker.main": "MLCommons's checker; test_full_tree runs it where it is",
    "--via hf": "needs CNN-DailyMail; tests/harness/dataset/test_download.py has a hub with made-up articles",
    "--what wordnet": "needs nltk's data; tests/harness/dataset/test_download.py fetches a file of its own",
    "build --benchmark llama3.1-8b": "test_the_page_of_a_benchmark_leads_to_a_checked_submission",
    "build --benchmark deepseek-r1": "test_the_page_of_a_benchmark_leads_to_a_checked_submission",
    "eval_accuracy.py --input-file r1.pkl": "needs the reference's outputs; tests of the evaluator have some",
    "mlperf prompts score": "needs WordNet and a model; tests/engines/test_bert_score.py has tiny ones",
    "./mlperf peak": "takes minutes; tests/programs/test_find_peak_search.py runs it",
    "# names, system, servers, bench": "test_the_readme_leads_to_a_checked_submission runs a campaign",
    ".toml --rehearsal": "tests/programs/test_rehearsal.py rehearses that file",
    "./mlperf ladder": "takes minutes; tests/programs/test_find_peak.py runs it",
    "./mlperf endpoints run --c-max 1024": "needs the official datasets; the guide of endpoints has samples",
    "./mlperf report ": "needs runs: test_the_readme_leads_to_a_checked_submission",
    "compare_checkers.py": "needs MLCommons's checker and the results of a round",
    "--api chat-ids --server-url": "needs trtllm-serve and a gateway; tests/engines has both",
    "trtllm_sources": "downloads files; tests/engines/test_trtllm_serve.py runs them where they are",
    "tests.fuzz": "10 minutes; test_fuzz_targets runs each target",
}
# Exit codes other than 0, by a part of the block.
# Random weights do not pass TEST07, nor the bounds of a score. A short Offline run can be slower than C_max.
EXIT_CODES = {
    "./mlperf doctor": "[023]",  # it looks at this machine, and at servers that are not there
    "mlperf_results/llama3.1-8b/offline/accuracy": 5,
    "mlperf_results/deepseek-r1/offline/accuracy": 5,
    "--test all --rehearsal": 5,
    "endpoints run --short": "[05]",
    "endpoints check": "[05]",
}
OTHER_BENCHMARKS = [page for page in PAGES if page.name in ("llama3.1-8b.md", "deepseek-r1.md")]
(ENDPOINTS,) = (page for page in PAGES if page.name == "endpoints.md")
GUIDE = [page for page in PAGES if "guide" in page.parts and page != ENDPOINTS]
# The blocks of submission.md that leave data, confs and a server; the guide's commands begin there.
SET_UP = slice(1, 3)
# The other pages come in alphabetical order; these start another engine on the port, or remove everything.
LAST = ("llamacpp.md", "trtllm.md", "vllm.md", "install.md")

SUBMITTED = {"results", "src", "systems"}

pytestmark = pytest.mark.timeout(1600)  # a page of commands takes minutes, on a busy machine many


def reason_not_to_run(block):
    return next((reason for part, reason in NOT_RUN.items() if part in block), None)


def script(page):
    """The page's commands, in a shell of its own."""
    runnable = [as_run(block) for block in blocks(page) if not reason_not_to_run(block)]
    return "\n".join([f"echo '=== {name_of(page)}'", "(", *runnable, ")"]) if runnable else ""


# A page that starts a server finds none of another page: run_server.sh refuses a port that answers.
NO_SERVER = """\
if [[ -f $STAND_INS/server-30000 ]]; then
    kill -KILL "$(cut -d ' ' -f 2 "$STAND_INS/server-30000")"
    rm "$STAND_INS/server-30000"
    while curl -sf -o /dev/null http://localhost:30000/health; do sleep 1; done
fi
"""


def as_run(block):
    """A block that begins with ``#!`` is a script of its own."""
    if "--background" in block:
        block = NO_SERVER + block
    if block.startswith("#!"):
        return f"bash -ex <<'END'\n{block}END\n"
    code = next((code for part, code in EXIT_CODES.items() if part in block), None)
    return block if code is None else f"set +e\n{block}[[ $? == {code} ]] || exit 99\nset -e"


def run(checkout, text):
    ended = checkout.run(text)
    assert ended.code == 0, ended.output[-6000:]
    return ended.output


@pytest.fixture
def checkout(tmp_path):
    return make_checkout(tmp_path)


@pytest.mark.engine
def test_the_readme_leads_to_a_checked_submission(checkout):
    output = run(checkout, script(README))
    assert {path.name for path in (checkout.folder / "submission/closed/MyOrg").iterdir()} == SUBMITTED
    shown = [block for page in PAGES for block in blocks(page) if "./mlperf report " in block]
    assert len(shown) == 4
    run(checkout, "\n".join(["cp -r mlperf_results earlier_results", *shown]))
    assert (checkout.folder / "compare.html").is_file()
    # The commands that the runs print.
    printed = dict.fromkeys(re.findall(r"^Score it with: (.+)$", output, re.M))
    assert len(printed) == 2
    for command in printed:
        assert command.startswith("./mlperf score ")
        assert "FINAL SCORE" in run(checkout, command)


@pytest.mark.engine
@pytest.mark.parametrize("page", OTHER_BENCHMARKS, ids=name_of)
def test_the_page_of_a_benchmark_leads_to_a_checked_submission(page, checkout):
    """Its block is one submitter's work, from the set-up on."""
    run(checkout, blocks(page)[0])
    assert {path.name for path in (checkout.folder / "submission/closed/MyOrg").iterdir()} == SUBMITTED


@pytest.mark.engine
def test_the_guide(checkout):
    """After the README's set-up; each page without the results of the one before."""
    pages = sorted(GUIDE, key=lambda page: (page.name in LAST and LAST.index(page.name) + 1, page))
    between = "\nrm -rf mlperf_results submission\n"
    (submission,) = (page for page in GUIDE if page.name == "submission.md")
    run(checkout, "".join(blocks(submission)[SET_UP]) + between.join(map(script, pages)))


@pytest.mark.engine
def test_the_guide_of_endpoints_leads_to_a_checked_tree(checkout):
    output = run(checkout, "./setup.sh\n" + script(ENDPOINTS))
    folder = checkout.folder / "mlperf_results/gpt-oss-120b/endpoints"
    assert sorted(path.name for path in (folder / "runs").iterdir() if path.name == "offline") == ["offline"]
    assert len(list((folder / "tree").glob("*/*/results/*/*/r*/point.yaml"))) == 8
    for page in (folder / "endpoints.html", checkout.folder / "compare.html"):
        assert "NOT AN MLPERF RESULT" in page.read_text()
    assert "too short to tell" in output
    (submission,) = (path.parent for path in (folder / "tree").glob("*/*/results"))
    errors = [one for one in check_officially(submission) if one.severity is Severity.ERROR]
    assert [one for one in errors if not came_in_one_piece(folder, one)] == []


def came_in_one_piece(folder, error):
    """Whether a point has no TPOT because each answer's text was there before the client could read a part.

    Eight tokens take the embedded engine as long as a process may wait for a core on a busy machine.
    """
    if error.rule != "metric-consistency-tpot-p90":
        return False
    requests = pq.read_table(folder / "runs" / Path(error.path).parent.name / "requests.parquet")
    shown, sent = (requests[name].to_pylist() for name in ("visible_tokens", "osl"))
    return shown == sent  # a first token may be without text


def test_every_reason_is_needed():
    text = "".join(block for page in PAGES for block in blocks(page))
    assert [part for part in (*NOT_RUN, *EXIT_CODES) if part not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_in_blocks_that_are_run(page):
    """No command stands in a block without the name of its language, where no test would find it."""
    ours = r"(?m)^ *(?:\.venv/bin/|\./mlperf|\./setup|sglang/run|datasets/download).*"
    assert re.findall(ours, outside_blocks(page)) == []
