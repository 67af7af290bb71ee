"""Results of gpt-oss-120b in the Endpoints layout, in place of those of LoadGen."""

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from harness.submission.tree.round_rules import load_rules
from tests.harness.submission.edits import Edit

CONFIG, SUMMARY, ACCURACY = "config.yaml", "performance/result_summary.json", "accuracy/accuracy_results.json"
SEEDS = load_rules("v6.1").seeds


def config(scenario: str) -> dict[str, Any]:
    offline = scenario.lower() == "offline"
    return {
        "version": "1.0",
        "type": "offline" if offline else "online",
        "model_params": {"name": "gpt-oss-120b", "streaming": "off" if offline else "on"},
        "settings": {
            "runtime": {
                "min_duration_ms": 600_000,
                "n_samples_to_issue": 6396,
                "scheduler_random_seed": SEEDS["schedule_rng_seed"],
                "dataloader_random_seed": SEEDS["sample_index_rng_seed"],
            },
            "load_pattern": {"type": "max_throughput" if offline else "poisson", "target_qps": 8.0},
        },
    }


def summary() -> dict[str, Any]:
    """TTFT and TPOT within the limits of Interactive."""

    def block(ms: float) -> dict[str, Any]:
        percentiles = dict.fromkeys(("50.0", "90.0", "99.0"), ms * 1e6)
        return {"min": 1e6, "max": 1e9, "avg": ms * 1e6, "early_stopping_percentiles": percentiles}

    return {
        "n_samples_issued": 6396,
        "n_samples_completed": 6396,
        "n_samples_failed": 0,
        "duration_ns": 700 * 10**9,
        "state": "complete",
        "complete": True,
        "output_sequence_lengths": {"total": 6396 * 1278, "min": 1, "max": 4000, "avg": 1278.0},
        "latency": block(15_000.0),
        "ttft": block(1_500.0),
        "tpot": block(12.0),
        "qps": 6396 / 700,
        "tps": 6396 * 1278 / 700,
    }


# Right answers, rows and repeats in a published accuracy.txt (Nebius, v6.0), of which the score is 83.833 %.
SUBSETS = {"aime25": (195, 30, 8), "gpqa": (756, 198, 5), "livecodebench": (2700, 1055, 3)}


def accuracy() -> dict[str, Any]:
    """The three data sets, as the client writes them."""
    entries = [
        entry(f"{name}::gptoss", right / (rows * repeats), rows, repeats)
        for name, (right, rows, repeats) in SUBSETS.items()
    ]
    return {"accuracy_scores": entries}


def entry(name: str, score: float | dict[str, str], rows: int, repeats: int = 1) -> dict[str, Any]:
    """One data set."""
    issued = rows * repeats
    return {
        "dataset_name": name,
        "score": score,
        "unit_samples": rows,
        "num_repeats": repeats,
        "total_samples": issued,
        "complete": True,
        "dataset_type": "accuracy",
        "response_counts": {"issued": issued, "scored": issued, "empty": 0, "missing": 0},
    }


def endpoints(scenario: str, name: str = "") -> Edit:
    """A scenario's folder in this layout, under another name."""

    def edit(results: Path) -> None:
        folder = results / scenario
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        (folder / "user.conf").unlink()
        own = summary() | {"test_started_at": len(scenario) * 10**12}  # no other scenario's name is as long
        for file, content in {CONFIG: config(scenario), SUMMARY: own, ACCURACY: accuracy()}.items():
            save(folder / file, content)
        folder.rename(results / (name or scenario))

    return edit


def save(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content) if path.suffix == ".yaml" else json.dumps(content))


def change(file: str, value: Any, *keys: str | int, scenario: str = "Interactive") -> Edit:
    """Another value in a file; None: without it."""

    def edit(results: Path) -> None:
        path = results / scenario / file
        content = yaml.safe_load(path.read_text()) if path.suffix == ".yaml" else json.loads(path.read_text())
        at = content
        for key in keys[:-1]:
            at = at[key]
        if value is None:
            del at[keys[-1]]
        else:
            at[keys[-1]] = value
        save(path, content)

    return edit
