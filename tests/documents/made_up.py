"""What download.sh finds in place of the official files: the same names and columns, a few rows.

    python -m tests.documents.made_up FOLDER      (in a checkout with small_sizes)

FOLDER then holds ``mlcommons/``, as MLCommons' downloader leaves it, and ``huggingface/``.
"""

import hashlib
import re
import shutil
import sys
from pathlib import Path

from harness.config.rounds import current_round
from tests.made_up import cnn as made_up_cnn
from tests.made_up import deepseek_r1 as made_up_r1
from tests.made_up.synthetic import Datasets, accuracy_rows, make_datasets

SIZES = {"aime25": 1, "gpqa_diamond": 1, "livecodebench_v6": 6}
ACCURACY, COMPLIANCE = 1 * 8 + 1 * 5 + 6 * 3, 1 * 5
# LoadGen divides Server's tokens by the time of all queries and its samples by that of all but one: from 1000
# queries on the two agree as closely as the submission's cross-check asks for.
PERFORMANCE, RATE = 1100, 800
TOKENS = 12
DURATION_MS = 500
R1_CALIBRATION = "mlperf_deepseek_r1_calibration_dataset_500_fp8_eval.pkl"
# One program: release v1 is the first of the made-up release's files, which have a problem each.
R1_COMPOSITION = {"mmlu_pro": 600, "aime1983": 240, "math500": 134, "gpqa": 125, "livecodebench": 1}
R1_TOKENS = 40

# Patterns in the benchmarks' definitions. Everything else in them stays as it is.
# The machine of a test may be busy: latencies must not decide here.
_ALL = {r"min_duration_ms = 600000": f"min_duration_ms = {DURATION_MS}"}
_ALL |= {r"ttft_ms = [23]000": "ttft_ms = 60000", r"tpot_ms = (80|100)\b": "tpot_ms = 10000"}
_DEFINITIONS = {
    "gpt-oss-120b": {
        "= 6396": f"= {PERFORMANCE}",
        "= 4395": f"= {ACCURACY}",
        "samples = 990": f"samples = {COMPLIANCE}",
        "min_query_count = 990": f"min_query_count = {COMPLIANCE}",
        r"tpot_ms = 15\b": "tpot_ms = 10000",
        r"reference_mean_output_tokens = 1278\.20": f"reference_mean_output_tokens = {TOKENS}",
    },
    "llama3.1-8b": {
        "= 13368": f"= {PERFORMANCE}",
        "reference = 8167644": f"reference = {8167644 * PERFORMANCE // 13368}",
    },
    "deepseek-r1": {
        "= 4388": f"= {PERFORMANCE}",
        r"reference = 3886\.2274": f"reference = {R1_TOKENS}",
    },
}
_LATENCIES = "".join(
    f"{key}.Server.{name} = {value}\n"
    for key in ("gpt-oss-120b", "gpt-oss-120b-interactive", "llama3_1-8b", "deepseek-r1")
    for name, value in (("ttft_latency", 60000), ("tpot_latency", 10000))
)
_USER_CONF = {
    "min_duration = 600000": f"min_duration = {DURATION_MS}",
    "= (6396|13368|4388)": f"= {PERFORMANCE}",
    r"\*\.Server\.target_qps = 10\.0": f"*.Server.target_qps = {RATE}\n{_LATENCIES}",
}
_QUICK_CONF = {
    "min_duration = 1000\n": "min_duration = 0\n",
    "min_duration = 25000": f"min_duration = {DURATION_MS}",
    r"\*\.Server\.target_qps = 20\.0": f"*.Server.target_qps = {2 * RATE}\n{_LATENCIES}",
    "min_query_count = 64": "min_query_count = 16",
}


def small_sizes(checkout: Path) -> None:
    """Make the benchmarks, their confs and runs small."""
    configs = checkout / "configs"
    for name, changes in _DEFINITIONS.items():
        now = configs / "rounds" / current_round() / f"{name}.toml"
        _replace(_ALL | changes, configs / f"{name}.toml", now)
    _replace(_USER_CONF, configs / "user.conf")
    _replace(_QUICK_CONF, configs / "quick.conf")


def _replace(changes: dict[str, str], *paths: Path) -> None:
    for old, new in changes.items():
        found = [re.subn(old, new, path.read_text()) for path in paths]
        assert any(count for _, count in found), f"{paths} have no {old!r} any more"
        for path, (text, _) in zip(paths, found, strict=True):
            path.write_text(text)


def record_checksums(checkout: Path, downloads: Path) -> None:
    """Put the sha256 of the made-up files in the place of the official ones' sums."""
    manifest = checkout / "datasets/manifest.tsv"
    lines = [line.split("\t") for line in manifest.read_text().splitlines()]
    for cells in lines:
        found = [path for path in downloads.glob(f"*/{cells[3]}") if path.is_file()] if len(cells) > 3 else []
        if found:
            cells[4] = f"sha256:{hashlib.sha256(found[0].read_bytes()).hexdigest()}"
    manifest.write_text("".join("\t".join(cells) + "\n" for cells in lines))


def write_downloads(folder: Path) -> Datasets:
    for name in ("mlcommons/perf", "mlcommons/acc", "huggingface/livecodebench"):
        (folder / name).mkdir(parents=True)
    data = make_datasets(folder, SIZES)
    data.performance.rename(folder / "mlcommons/perf/perf_eval_ref.parquet")
    data.accuracy.rename(folder / "mlcommons/acc/acc_eval_ref.parquet")
    data.compliance.rename(folder / "mlcommons/acc/acc_eval_compliance_gpqa.parquet")
    cnn = made_up_cnn.write(folder / "mlcommons", made_up_cnn.DATACENTER, rows=PERFORMANCE)
    for name in ("sample_cnn_eval_5000.json", "cnn_dailymail_calibration.json"):
        shutil.copy(cnn.dataset, folder / "mlcommons" / name)
    cnn.tokenizer.rename(folder / "huggingface/tokenizer.json")
    questions = made_up_r1.write(folder / "mlcommons", R1_COMPOSITION)
    (folder / "mlcommons/release.jsonl").unlink()
    shutil.copy(questions.dataset, folder / "mlcommons" / R1_CALIBRATION)
    problems = data.release.read_text().splitlines(keepends=True)
    data.release.unlink()
    for number, problem in enumerate(problems, 1):
        name = f"test{number if number > 1 else ''}.jsonl"
        (folder / "huggingface/livecodebench" / name).write_text(problem)
    return data


def rows():
    return tuple(accuracy_rows(SIZES))


if __name__ == "__main__":
    write_downloads(Path(sys.argv[1]))
