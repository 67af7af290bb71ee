"""datasets/download.sh with stand-ins for curl, mlcr and hf on PATH; no network is touched."""

import hashlib
import os
import shutil
import subprocess
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from tests.harness.dataset.test_cnndm import GOLDEN, TOKENIZER, validation_split
from tests.kit import needs_curl
from tests.runs import ROOT

BASICS = ("awk", "bash", "cat", "cut", "dirname", "md5sum", "mkdir", "mktemp", "paste", "rm", "sed")
BASICS += ("mv", "sha256sum", "sort")
LOG = 'printf "%s\\n" "$(basename_of "$0") $*" >>"$CALLS"\n'
PROLOGUE = '#!/usr/bin/env bash\nset -eu\nbasename_of() { printf "%s" "${1##*/}"; }\n' + LOG
PERF, ACC, GPQA = b"performance", b"accuracy", b"compliance"
LCB = [b"one", b"two"]

# What MLCommons' downloader does as far as it matters here: -d folder, then the set's address.
FAKE_R2 = """
[ "$1" = -d ]
printf "%s\\n" "r2 $*" >>"$CALLS"
[ "${R2_FAILS:-0}" = 0 ] || exit "$R2_FAILS"
mkdir -p "$2/perf" "$2/acc"
printf "%s" "${PERF_CONTENT:-performance}" >"$2/perf/perf_eval_ref.parquet"
printf accuracy >"$2/acc/acc_eval_ref.parquet"
printf compliance >"$2/acc/acc_eval_compliance_gpqa.parquet"
"""
FAKE_CURL = f"""{PROLOGUE}
[ "${{CURL_FAILS:-0}}" = 0 ] || exit "$CURL_FAILS"
while [ "$1" != --output ]; do shift; done
cat >"$2" <<'SCRIPT'
{FAKE_R2}
SCRIPT
"""
FAKE_MLCR = f"""{PROLOGUE}
[ "${{MLCR_FAILS:-0}}" = 0 ] || exit "$MLCR_FAILS"
to=${{2#--outdirname=}}
mkdir -p "$to/perf"
printf performance >"$to/perf/perf_eval_ref.parquet"
"""
FAKE_HF = f"""{PROLOGUE}
[ "${{HF_FAILS:-0}}" = 0 ] || exit "$HF_FAILS"
for to; do :; done
mkdir -p "$to"
printf one >"$to/test.jsonl"
printf two >"$to/test2.jsonl"
printf {{}} >"$to/config.json"
"""
FAKES = {"curl": FAKE_CURL, "wget": PROLOGUE, "mlcr": FAKE_MLCR, "hf": FAKE_HF}


def run(script, *words, environment):
    command = [shutil.which("bash"), str(script), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


class Place:
    """A copy of the script with a small manifest, and a PATH that holds only what a test gives it."""

    def __init__(self, folder):
        self.folder, self.bin, self.calls_file = folder, folder / "bin", folder / "calls"
        self.script = folder / "datasets" / "download.sh"
        self.to = folder / "a place" / "for data"
        self.script.parent.mkdir()
        self.bin.mkdir()
        shutil.copy(ROOT / "datasets" / "download.sh", self.script)
        for tool in BASICS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.manifest(perf="sha256:" + hashlib.sha256(PERF).hexdigest())

    def manifest(self, perf):
        lcb = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in LCB]
        lines = [
            "# a comment",
            f"gpt-oss-120b\tperf\tmlc:gpt-oss-data\tperf/perf_eval_ref.parquet\t{perf}\tget-it,_mlc",
            "gpt-oss-120b\tacc\tmlc:gpt-oss-data\tacc/acc_eval_ref.parquet\t-\tget-it,_mlc",
            f"gpt-oss-120b\tlivecodebench\thf-dataset:lcb/lite@abc\tlivecodebench/test.jsonl\t{lcb[0]}\t-",
            f"gpt-oss-120b\tlivecodebench\thf-dataset:lcb/lite@abc\tlivecodebench/test2.jsonl\t{lcb[1]}\t-",
            "gpt-oss-120b\tmodel\thf-model:org/model@def\tmodels/model/\t-\t-",
            "gpt-oss-120b\teagle\thf-model:org/eagle@main\tmodels/eagle/\t-\t-",
            f"gpt-oss-20b\twordnet\turl:file://{self.folder}/offered.zip\tnltk/wordnet.zip\t-\t-",
            "gpt-oss-20b\tmodel\thf-model:org/small@main\tmodels/small/\t-\tget-the-model,_mlc",
        ]
        (self.script.parent / "manifest.tsv").write_text("\n".join(lines) + "\n")

    def tools(self, *names):
        for name in names:
            (self.bin / name).write_text(FAKES[name])
            (self.bin / name).chmod(0o755)

    def run(self, *arguments, to=True, **environment):
        self.calls_file.write_text("")
        where = ["--to", str(self.to)] if to else []
        environment |= {"PATH": str(self.bin), "CALLS": str(self.calls_file), "TMPDIR": str(self.folder)}
        return run(self.script, *arguments, *where, environment=environment)

    def put(self, name, content):
        """A file that is there before the download."""
        path = self.to / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        return path

    @property
    def calls(self):
        return self.calls_file.read_text().splitlines()


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def failed(done, code, *words):
    assert done.returncode == code, done
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("download.sh: ")
    assert [word for word in words if word not in done.stderr] == []


def test_mlcommons_downloader_and_no_second_download(place):
    place.tools("curl", "wget", "mlcr")
    done = place.run()
    assert done.returncode == 0 and done.stdout == "ok        perf/perf_eval_ref.parquet (known sha256)\n"
    curl, r2 = place.calls
    assert curl.startswith("curl --fail ")
    assert curl.endswith("/r2-downloader/refs/heads/main/mlc-r2-downloader.sh")
    assert r2 == f"r2 -d {place.to} https://inference.mlcommons-storage.org/metadata/gpt-oss-data.uri"
    assert not [path for path in place.folder.iterdir() if path.name.startswith("tmp.")]
    assert place.run().returncode == 0 and not place.calls


@pytest.mark.parametrize(("tools", "words"), [(["mlcr"], []), (["curl", "wget", "mlcr"], ["--via", "mlcr"])])
def test_mlcr_where_it_is_needed_or_wanted(tools, words, place):
    place.tools(*tools)
    assert place.run(*words).returncode == 0
    assert place.calls == [f"mlcr get-it,_mlc --outdirname={place.to} -j"]


def test_hugging_face_dataset(place):
    place.tools("hf")
    assert place.run("--what", "livecodebench").returncode == 0
    options = f"--repo-type dataset --revision abc --local-dir {place.to}/livecodebench"
    assert place.calls == [f"hf download lcb/lite test.jsonl test2.jsonl {options}"]
    assert place.run("--what", "livecodebench").returncode == 0 and not place.calls


@pytest.mark.parametrize("client", ["hf", "huggingface-cli"])  # the older name
def test_model(client, place):
    place.tools("hf")
    (place.bin / "hf").rename(place.bin / client)
    done = place.run("--what", "model")
    assert done.returncode == 0 and "present   models/model/" in done.stdout
    options = f"--repo-type model --revision def --local-dir {place.to}/models/model"
    assert place.calls == [f"{client} download org/model {options}"]


def test_hf_is_found_where_setup_installed_it(place):
    """README step 2 follows setup.sh, whose environment is not on PATH."""
    own = place.folder / ".venv/bin/hf"
    own.parent.mkdir(parents=True)
    own.write_text(FAKE_HF)
    own.chmod(0o755)
    assert place.run("--what", "model").returncode == 0
    assert place.calls == [
        f"hf download org/model --repo-type model --revision def --local-dir {place.to}/models/model"
    ]
    failed(place.run("--what", "eagle", HF_FAILS="1"), 3, f'"{own} auth login"')


def test_via_mlcr_is_never_ignored(place):
    """A model comes from MLCommons where it has one, and is refused where it has none."""
    place.tools("hf", "mlcr")
    place.run("--benchmark", "gpt-oss-20b", "--what", "model", "--via", "mlcr")
    assert place.calls == [f"mlcr get-the-model,_mlc --outdirname={place.to}/models/small -j"]
    refused = place.run("--what", "livecodebench", "--via", "mlcr")
    failed(refused, 2, "--via mlcr", "livecodebench/test2.jsonl", "leave out --via")
    assert place.run("--what", "all", "--via", "mlcr").returncode == 2  # the fake brings no accuracy file
    assert [call.split()[0] for call in place.calls] == ["mlcr", "hf", "hf"]


def test_a_checksum_that_cannot_be_recorded(place):
    place.tools("curl", "wget")
    (place.to / "SHA256SUMS").mkdir(parents=True)
    failed(place.run("--what", "acc"), 2, "cannot write ", "SHA256SUMS; free space there")


@needs_curl
def test_a_file_of_an_address(place):
    """WordNet's archive, here with the real curl; what is half there has another name."""
    (place.bin / "curl").symlink_to(shutil.which("curl"))
    failed(place.run("--benchmark", "gpt-oss-20b", "--what", "wordnet"), 3, "offered.zip", "exit code 37")
    (place.folder / "offered.zip").write_bytes(b"words")
    assert place.run("--benchmark", "gpt-oss-20b", "--what", "wordnet").returncode == 0
    assert [path.name for path in (place.to / "nltk").iterdir()] == ["wordnet.zip"]
    assert (place.to / "SHA256SUMS").read_text().endswith("  nltk/wordnet.zip\n")


class Hub(BaseHTTPRequestHandler):
    """What the real hf asks of huggingface.co for a file."""

    files: ClassVar[dict[str, bytes]] = {}

    def do_HEAD(self):
        content = next((own for name, own in self.files.items() if self.path.endswith(name)), None)
        self.send_response(200 if content is not None else 404)
        self.send_header("content-length", str(len(content or b"")))
        if content is not None:
            self.send_header("etag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("x-repo-commit", "0" * 40)
        self.end_headers()
        return content or b""

    def do_GET(self):
        self.wfile.write(self.do_HEAD())

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(tmp_path):
    """A local server in place of Hugging Face, with articles of our own; its address."""
    split = validation_split(tmp_path / "offered.parquet").read_bytes()
    dataset, model = (
        "/datasets/abisee/cnn_dailymail/resolve/main",
        "/meta-llama/Llama-3.1-8B-Instruct/resolve",
    )
    Hub.files = {
        f"{dataset}/3.0.0/validation-00000-of-00001.parquet": split,
        f"{model}/be673f326cab4cd22ccfef76109faf68e41aa5f1/tokenizer.json": TOKENIZER.read_bytes(),
    }
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.engine
def test_cnn_dailymail_of_hugging_face_becomes_cnn_eval(hub, tmp_path):
    """With the hf of the environment: one command from the hub to the file that MLCommons distributes."""
    words = ("--benchmark", "llama3.1-8b", "--via", "hf", "--to", str(tmp_path / "data"))
    home = {"HF_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = run(ROOT / "datasets/download.sh", *words, environment=home | {"HF_ENDPOINT": hub})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data/cnn_eval.json").read_bytes() == (GOLDEN / "seven.json").read_bytes()
    assert "7 rows" in done.stderr and "not the official dataset" in done.stderr
    Hub.files.popitem()  # the tokenizer is there already
    (tmp_path / "data/cnn_eval.json").unlink()
    assert run(ROOT / "datasets/download.sh", *words, environment=home | {"HF_ENDPOINT": hub}).returncode == 0


def test_all_fetches_each_source_once(place):
    place.tools("curl", "wget", "hf")
    assert place.run("--what", "all").returncode == 0
    assert [call.split()[0] for call in place.calls] == ["curl", "r2", "hf", "hf"]
    assert not (place.to / "models" / "eagle").exists()


def test_interrupted_download_continues(place):
    place.tools("curl", "wget")
    file = place.put("perf/perf_eval_ref.parquet", PERF[:4])
    failed(place.run(R2_FAILS="8"), 3, "exit code 8", "run the same command again, it continues")
    assert file.read_bytes() == PERF[:4]
    assert place.run().returncode == 0 and len(place.calls) == 2


def test_a_file_without_known_checksum_is_fetched_and_its_checksum_recorded(place):
    """What an interrupted download left is not taken for complete."""
    place.tools("curl", "wget")
    file = place.put("acc/acc_eval_ref.parquet", ACC[:4])
    done = place.run("--what", "acc")
    assert done.stdout == "ok        acc/acc_eval_ref.parquet (recorded at download sha256)\n"
    assert file.read_bytes() == ACC and len(place.calls) == 2
    assert place.run("--what", "acc").returncode == 0 and not place.calls
    sums = (place.to / "SHA256SUMS").read_text()
    assert sums == f"{hashlib.sha256(ACC).hexdigest()}  acc/acc_eval_ref.parquet\n"
    file.write_bytes(b"changed")
    done = place.run("--what", "acc", "--verify")
    assert done.returncode == 2 and "DIFFERS   acc/acc_eval_ref.parquet" in done.stdout and not place.calls


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_checksum_mismatch(kind, place):
    place.tools("curl", "wget")
    place.manifest(perf=f"{kind}:{hashlib.new(kind, PERF).hexdigest()}")
    assert place.run().stdout.endswith(f" (known {kind})\n")
    shutil.rmtree(place.to)
    done = place.run(PERF_CONTENT="tampered")
    assert "DIFFERS   perf/perf_eval_ref.parquet" in done.stdout
    assert hashlib.new(kind, b"tampered").hexdigest() in done.stdout
    failed(done, 2, "1 of the files", "run datasets/download.sh --benchmark gpt-oss-120b --what perf")


def test_verify_says_what_it_does_not_know(place):
    place.tools("curl", "wget")
    assert place.run().returncode == 0
    done = place.run("--verify", "--what", "acc")
    assert done.returncode == 0 and not place.calls
    assert done.stdout.startswith("unknown   acc/acc_eval_ref.parquet: no checksum known; its sha256 is ")


def test_verify_of_nothing(place):
    done = place.run("--verify", "--what", "all")
    failed(
        done,
        2,
        "5 of the files",
        f"run datasets/download.sh --benchmark gpt-oss-120b --what all --to '{place.to}'",
    )
    assert done.stdout.count("MISSING") == 5
    assert "--to" not in place.run("--verify", "--what", "all", to=False).stderr


def test_dry_run_prints_and_leaves_everything(place):
    done = place.run("--what", "all", "--dry-run")
    assert done.returncode == 0 and not place.calls and not place.to.exists()
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["curl", "bash", "hf", "hf"]
    assert "a\\ place/for\\ data" in done.stdout


FAILURES = {
    "no curl": ((), (), {}, 3, "curl is missing; install it, or pip install mlc-scripts"),
    "no wget": (("curl",), (), {}, 3, "wget is missing"),
    "no mlcr": (("curl",), ("--via", "mlcr"), {}, 3, "mlcr is missing; pip install mlc-scripts"),
    "no hf": ((), ("--what", "model"), {}, 3, "hf is missing; run ./setup.sh, which installs it"),
    "no network": (("curl", "wget"), (), {"CURL_FAILS": "6"}, 3, "(curl exit code 6); connect to a network"),
    "no space for curl": (("curl", "wget"), (), {"CURL_FAILS": "23"}, 2, "free space there, or set TMPDIR"),
    "no space for an archive": (
        ("curl",),
        ("--benchmark", "gpt-oss-20b", "--what", "wordnet"),
        {"CURL_FAILS": "23"},
        2,
        "wordnet.zip; free space there, or choose another folder with --to",
    ),
    "mlcr fails": (("mlcr",), (), {"MLCR_FAILS": "1"}, 3, "failed with exit code 1"),
    "hf fails": (("hf",), ("--what", "model"), {"HF_FAILS": "1"}, 3, "hf auth login"),
    "unknown flag": ((), ("--frobnicate",), {}, 2, "unknown argument --frobnicate; see --help"),
    "a value missing": ((), ("--what",), {}, 2, "--what needs a value"),
    "unknown what": ((), ("--what", "x"), {}, 2, "there is no x for gpt-oss-120b, only acc, "),
    "unknown benchmark": ((), ("--benchmark", "x"), {}, 2, "no benchmark x, expected gpt-oss-120b, "),
    "another part": ((), ("--benchmark", "gpt-oss-20b"), {}, 2, "no perf for gpt-oss-20b, only model, "),
    "a shorter name": ((), ("--benchmark", "gpt-oss"), {}, 2, "did you mean gpt-oss-120b?"),
    "without hyphens": ((), ("--benchmark", "GPT_OSS20b"), {}, 2, "did you mean gpt-oss-20b?"),
    "unknown way": ((), ("--via", "pigeon"), {}, 2, "--via pigeon, expected r2, mlcr, hf or auto"),
    "not on Hugging Face": ((), ("--what", "acc", "--via", "hf"), {}, 2, "--via r2 or mlcr"),
    "a pattern": ((), ("--what", ".*"), {}, 2, "there is no .*"),
}


@pytest.mark.parametrize(
    ("tools", "arguments", "environment", "code", "message"), FAILURES.values(), ids=FAILURES
)
def test_failure_is_one_line_with_a_remedy(tools, arguments, environment, code, message, place):
    place.tools(*tools)
    failed(place.run(*arguments, to=arguments[-1:] != ("--what",), **environment), code, message)


def test_place_that_cannot_be_written(place):
    place.tools("curl", "wget")
    place.to.parent.write_text("a file where a folder should be")
    failed(place.run(), 2, "cannot write to", "--to")


def test_help(place):
    done = place.run("--help", to=False)
    assert done.returncode == 0 and "--verify" in done.stdout and not done.stderr


def test_our_samples_are_as_the_manifest_says():
    done = run(ROOT / "datasets" / "download.sh", "--benchmark", "samples", environment=os.environ)
    assert done.returncode == 0 and done.stdout.count("(known sha256)") == 8
    assert not (ROOT / "datasets" / "SHA256SUMS").exists()


R1 = "get,preprocessed,dataset,deepseek-r1,{},_mlc,_r2-downloader"
R1_FILES = "deepseek-r1-datasets-fp8-eval"
CNN = "get,dataset,cnndm,{},_llama3,_mlc,_r2-downloader"
# As MLCommons' pages name them: benchmark, what, the set of R2, mlcr's tags one by one, folder
SOURCES = [
    ("deepseek-r1", "perf", R1_FILES, [R1.format("_validation")], ""),
    ("deepseek-r1", "calibration", R1_FILES, [R1.format("_calibration")], ""),
    ("deepseek-r1", "model-mlc", "deepseek-r1", ["get,ml-model,deepseek-r1,_r2-downloader,_mlc"],
     "/models/DeepSeek-R1"),
    ("deepseek-r1", "all", R1_FILES, [R1.format("_validation"), R1.format("_calibration")], ""),
    ("llama3.1-8b", "perf", "llama3-1-8b-cnn-eval", [CNN.format("_validation,_datacenter")], ""),
    ("llama3.1-8b", "edge", "llama3-1-8b-sample-cnn-eval-5000", [CNN.format("_validation,_edge")], ""),
    ("llama3.1-8b", "calibration", "llama3-1-8b-cnn-dailymail-calibration", [CNN.format("_calibration")], ""),
    ("llama3.1-8b-edge", "perf", "llama3-1-8b-sample-cnn-eval-5000", [CNN.format("_validation,_edge")], ""),
]  # fmt: skip


@pytest.mark.parametrize(("benchmark", "what", "name", "tags", "folder"), SOURCES)
def test_sources_of_mlcommons(benchmark, what, name, tags, folder, tmp_path):
    script, place = ROOT / "datasets" / "download.sh", f"{tmp_path}{folder}"
    words = ["--to", str(tmp_path), "--dry-run", "--benchmark", benchmark, "--what", what, "--via"]
    by_r2, by_mlcr = (
        run(script, *words, via, environment=os.environ).stdout.replace("\\", "").splitlines()
        for via in ("r2", "mlcr")
    )
    uri = f"-d {place} https://inference.mlcommons-storage.org/metadata/{name}.uri"
    assert len([line for line in by_r2 if line.strip().endswith(uri)]) == 1
    commands = [line.strip() for line in by_mlcr if line.startswith("mlcr ")]
    assert commands == [f"mlcr {each} --outdirname={place} -j" for each in tags]


def test_manifest_and_benchmark_definitions_agree():
    manifest = (ROOT / "datasets" / "manifest.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in manifest if not line.startswith("#")]
    assert all(len(row) == 6 for row in rows)
    for config in (ROOT / "configs").glob("*.toml"):
        definition = tomllib.loads(config.read_text(encoding="utf-8"))
        if not definition.get("official"):
            continue
        ours = [row for row in rows if row[0] == definition["name"]]
        files = {dataset["file"] for dataset in definition["datasets"].values()}
        assert files <= {row[3] for row in ours}
        (model,) = (row[2] for row in ours if row[1] == "model")
        assert model == f"hf-model:{definition['model']}@{definition.get('model_revision', 'main')}"
