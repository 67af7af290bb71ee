"""datasets/download.sh with stand-ins for curl, mlcr and hf on PATH; no network is touched."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BASICS = ("awk", "bash", "cat", "cut", "dirname", "md5sum", "mkdir", "mktemp", "paste", "rm", "sed")
BASICS += ("sha256sum", "sort")
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
        words = [shutil.which("bash"), str(self.script), *arguments, *where]
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)

    @property
    def calls(self):
        return self.calls_file.read_text().splitlines()


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def failed(done, code, *words):
    assert done.returncode == code, done
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("download.sh: ")
    for word in words:
        assert word in done.stderr
    return True


def test_mlcommons_downloader(place):
    place.tools("curl", "wget")
    done = place.run()
    assert done.returncode == 0 and done.stdout == "ok        perf/perf_eval_ref.parquet (known sha256)\n"
    curl, r2 = place.calls
    assert curl.startswith("curl --fail ")
    assert curl.endswith("/r2-downloader/refs/heads/main/mlc-r2-downloader.sh")
    assert r2 == f"r2 -d {place.to} https://inference.mlcommons-storage.org/metadata/gpt-oss-data.uri"
    assert not [path for path in place.folder.iterdir() if path.name.startswith("tmp.")]


def test_mlcr(place):
    place.tools("mlcr")
    assert place.run().returncode == 0
    assert place.calls == [f"mlcr get-it,_mlc --outdirname={place.to} -j"]


def test_mlcr_only_where_it_is_wanted_or_needed(place):
    place.tools("curl", "wget", "mlcr")
    assert place.run().returncode == 0 and len(place.calls) == 2
    shutil.rmtree(place.to)
    assert place.run("--via", "mlcr").returncode == 0 and place.calls[0].startswith("mlcr ")


def test_hugging_face_dataset(place):
    place.tools("hf")
    assert place.run("--what", "livecodebench").returncode == 0
    (call,) = place.calls
    options = f"--repo-type dataset --revision abc --local-dir {place.to}/livecodebench"
    assert call == f"hf download lcb/lite test.jsonl test2.jsonl {options}"


def test_model(place):
    place.tools("hf")
    done = place.run("--what", "model")
    assert done.returncode == 0 and "present   models/model/" in done.stdout
    options = f"--repo-type model --revision def --local-dir {place.to}/models/model"
    assert place.calls == [f"hf download org/model {options}"]


def test_older_name_of_the_hugging_face_client(place):
    place.tools("hf")
    (place.bin / "hf").rename(place.bin / "huggingface-cli")
    assert place.run("--what", "model").returncode == 0
    assert place.calls[0].startswith("huggingface-cli download ")


def test_all_fetches_each_source_once(place):
    place.tools("curl", "wget", "hf")
    assert place.run("--what", "all").returncode == 0
    assert [call.split()[0] for call in place.calls] == ["curl", "r2", "hf", "hf"]
    assert not (place.to / "models" / "eagle").exists()


def test_what_is_whole_is_not_fetched_again(place):
    place.tools("curl", "wget", "hf")
    for what in ("perf", "acc", "livecodebench"):
        assert place.run("--what", what).returncode == 0 and place.calls
        assert place.run("--what", what).returncode == 0 and not place.calls


def test_interrupted_download_continues(place):
    place.tools("curl", "wget")
    (place.to / "perf").mkdir(parents=True)
    (place.to / "perf" / "perf_eval_ref.parquet").write_bytes(PERF[:4])
    failed(place.run(R2_FAILS="8"), 3, "exit code 8", "run the same command again, it continues")
    assert (place.to / "perf" / "perf_eval_ref.parquet").read_bytes() == PERF[:4]
    assert place.run().returncode == 0 and len(place.calls) == 2


def test_interrupted_file_without_known_checksum_is_not_taken_for_whole(place):
    place.tools("curl", "wget")
    (place.to / "acc").mkdir(parents=True)
    (place.to / "acc" / "acc_eval_ref.parquet").write_bytes(ACC[:4])
    done = place.run("--what", "acc")
    assert done.returncode == 0 and len(place.calls) == 2
    assert (place.to / "acc" / "acc_eval_ref.parquet").read_bytes() == ACC


def test_checksum_is_recorded_at_the_first_download(place):
    place.tools("curl", "wget")
    done = place.run("--what", "acc")
    assert done.stdout == "ok        acc/acc_eval_ref.parquet (recorded at download sha256)\n"
    sums = (place.to / "SHA256SUMS").read_text()
    assert sums == f"{hashlib.sha256(ACC).hexdigest()}  acc/acc_eval_ref.parquet\n"
    (place.to / "acc" / "acc_eval_ref.parquet").write_bytes(b"changed")
    done = place.run("--what", "acc", "--verify")
    assert done.returncode == 2 and "DIFFERS   acc/acc_eval_ref.parquet" in done.stdout and not place.calls


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_checksum_mismatch(kind, place):
    place.tools("curl", "wget")
    place.manifest(perf=f"{kind}:{hashlib.new(kind, PERF).hexdigest()}")
    assert place.run().returncode == 0
    shutil.rmtree(place.to)
    done = place.run(PERF_CONTENT="tampered")
    assert "DIFFERS   perf/perf_eval_ref.parquet" in done.stdout
    assert hashlib.new(kind, b"tampered").hexdigest() in done.stdout
    assert failed(done, 2, "1 of the files", "run datasets/download.sh --benchmark gpt-oss-120b --what perf")


def test_verify_says_what_it_does_not_know(place):
    place.tools("curl", "wget")
    assert place.run().returncode == 0
    done = place.run("--verify", "--what", "acc")
    assert done.returncode == 0 and not place.calls
    assert done.stdout.startswith("unknown   acc/acc_eval_ref.parquet: no checksum known; its sha256 is ")


def test_verify_of_nothing(place):
    done = place.run("--verify", "--what", "all")
    assert failed(done, 2, "5 of the files") and done.stdout.count("MISSING") == 5


def test_dry_run_prints_and_leaves_everything(place):
    done = place.run("--what", "all", "--dry-run")
    assert done.returncode == 0 and not place.calls and not place.to.exists()
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["curl", "bash", "hf", "hf"]
    assert "a\\ place/for\\ data" in done.stdout


FAILURES = {
    "no curl": ((), (), {}, 3, "curl is missing; install it, or pip install mlc-scripts"),
    "no wget": (("curl",), (), {}, 3, "wget is missing"),
    "no mlcr": (("curl",), ("--via", "mlcr"), {}, 3, "mlcr is missing; pip install mlc-scripts"),
    "no hf": ((), ("--what", "model"), {}, 3, "hf is missing; pip install huggingface_hub"),
    "no network": (("curl", "wget"), (), {"CURL_FAILS": "6"}, 3, "(curl exit code 6); connect to a network"),
    "mlcr fails": (("mlcr",), (), {"MLCR_FAILS": "1"}, 3, "failed with exit code 1"),
    "hf fails": (("hf",), ("--what", "model"), {"HF_FAILS": "1"}, 3, "hf auth login"),
    "unknown flag": ((), ("--frobnicate",), {}, 2, "unknown argument --frobnicate; see --help"),
    "unknown what": ((), ("--what", "x"), {}, 2, "there is no x for gpt-oss-120b, only gpt-oss-120b acc"),
    "unknown benchmark": ((), ("--benchmark", "x"), {}, 2, "there is no perf for x"),
    "unknown way": ((), ("--via", "pigeon"), {}, 2, "--via pigeon, expected r2, mlcr or auto"),
    "a pattern": ((), ("--what", ".*"), {}, 2, "there is no .*"),
}


@pytest.mark.parametrize(
    ("tools", "arguments", "environment", "code", "message"), FAILURES.values(), ids=FAILURES
)
def test_failure_is_one_line_with_a_remedy(tools, arguments, environment, code, message, place):
    place.tools(*tools)
    failed(place.run(*arguments, **environment), code, message)


def test_value_missing(place):
    failed(place.run("--what", to=False), 2, "--what needs a value")


def test_place_that_cannot_be_written(place):
    place.tools("curl", "wget")
    place.to.parent.write_text("a file where a folder should be")
    failed(place.run(), 2, "cannot write to", "--to")


def test_help(place):
    done = place.run("--help", to=False)
    assert done.returncode == 0 and "--verify" in done.stdout and not done.stderr


def test_our_samples_are_as_the_manifest_says():
    words = [shutil.which("bash"), str(ROOT / "datasets" / "download.sh"), "--benchmark", "samples"]
    done = subprocess.run(words, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("(known sha256)") == 8
    assert not (ROOT / "datasets" / "SHA256SUMS").exists()


R1 = "get,preprocessed,dataset,deepseek-r1,{},_mlc,_r2-downloader"
R1_FILES = "deepseek-r1-datasets-fp8-eval"


@pytest.mark.parametrize(
    ("what", "name", "tags", "folder"),
    [
        ("perf", R1_FILES, [R1.format("_validation")], ""),
        ("calibration", R1_FILES, [R1.format("_calibration")], ""),
        ("model-mlc", "deepseek-r1", ["get,ml-model,deepseek-r1,_r2-downloader,_mlc"], "/models/DeepSeek-R1"),
        ("all", R1_FILES, [R1.format("_validation"), R1.format("_calibration")], ""),
    ],
)
def test_sources_of_deepseek(what, name, tags, folder, tmp_path):
    """As MLCommons' pages name them: one download of R2 has both files, mlcr fetches them one by one."""
    place = f"{tmp_path}{folder}"
    uri = f"-d {place} https://inference.mlcommons-storage.org/metadata/{name}.uri"
    assert [line for line in dry_run("deepseek-r1", what, "r2", tmp_path) if line.endswith(uri)]
    commands = [line for line in dry_run("deepseek-r1", what, "mlcr", tmp_path) if line.startswith("mlcr ")]
    assert commands == [f"mlcr {each} --outdirname={place} -j" for each in tags]


def dry_run(benchmark, what, via, folder):
    script = [str(ROOT / "datasets" / "download.sh"), "--to", str(folder), "--via", via, "--dry-run"]
    command = [*script, "--benchmark", benchmark, "--what", what]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.strip() for line in done.stdout.replace("\\", "").splitlines()]


LLAMA = {  # as MLCommons' pages name them
    ("llama3.1-8b", "perf"): ("llama3-1-8b-cnn-eval", "_validation,_datacenter"),
    ("llama3.1-8b", "edge"): ("llama3-1-8b-sample-cnn-eval-5000", "_validation,_edge"),
    ("llama3.1-8b", "calibration"): ("llama3-1-8b-cnn-dailymail-calibration", "_calibration"),
    ("llama3.1-8b-edge", "perf"): ("llama3-1-8b-sample-cnn-eval-5000", "_validation,_edge"),
}


@pytest.mark.parametrize(("benchmark", "what"), LLAMA)
def test_sources_of_llama(benchmark, what, tmp_path):
    name, tags = LLAMA[benchmark, what]
    for via, expected in (
        ("r2", f"https://inference.mlcommons-storage.org/metadata/{name}.uri"),
        ("mlcr", f"mlcr get,dataset,cnndm,{tags},_llama3,_mlc,_r2-downloader --outdirname={tmp_path} -j"),
    ):
        assert dry_run(benchmark, what, via, tmp_path)[-1].endswith(expected)


def test_manifest_and_benchmark_definitions_agree():
    import tomllib

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
