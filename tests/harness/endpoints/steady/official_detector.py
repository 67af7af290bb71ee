"""The official detector's outcomes of made-up runs: from its script, and frozen in a data file.

``python -m tests.harness.endpoints.steady.official_detector SCRIPT COMMIT`` writes the data file anew.
Scripts later than the data file's commit import the official client, and do not run alone.
"""

import importlib.util
import json
import sys
import tempfile
from pathlib import Path

from harness.endpoints.run_folder import EVENTS
from tests.harness.endpoints.steady.made_up_runs import SHAPES, run_of, write_run

FROZEN = Path(__file__).parents[3] / "data" / "endpoints" / "steady_cases.json"
SEED = 1


def load(script):
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("official_steady_state", script)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Its dataclasses look for it there.
    spec.loader.exec_module(module)
    return module


def outcome(official, samples, size):
    """What the module says of these samples; a word is a token."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        write_run(run, samples)
        return summary(official.run(str(run / EVENTS), size, words))


def words(texts):
    return [len(text.split()) for text in texts]


def summary(result):
    """The script's ``--json`` without what only plots need."""
    found = result["steady_state"]
    shift = found["anomaly"]
    return {
        "cropped": result["warmup"],
        "super_passes": result["n_super_passes"],
        "found": found["found"],
        "window": found["window"],
        "ttft": _time(found["ttft"]),
        "tpot": _time(found["tpot"]),
        "tps": found["tps"],
        "short_window": _part(found["short_window"], "is_short window_duration_s min_duration_s dominant"),
        "anomaly": _part(shift, "detected change_point_sp delta_pct") if shift["detected"] else None,
        "global_trend": found["global_trend"],
        "drifting_up": found["drifting_up"],
        "tpot_p90": [each["tpot_p90"] for each in result["per_super_pass"]],
    }


def _time(values):
    return values and [values[key] for key in ("p50", "p90", "p99", "mean", "count")]


def _part(values, keys):
    return values and {key: values[key] for key in keys.split()}


def frozen():
    return json.loads(FROZEN.read_text())["cases"]


def _digits(value):
    """Nine significant digits."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: _digits(each) for key, each in value.items()}
    return [_digits(each) for each in value] if isinstance(value, list | tuple) else value


def freeze(script, commit):
    official = load(script)
    lines = []
    for name, shape in SHAPES.items():
        case = _digits(outcome(official, run_of(shape, SEED), shape.size))
        lines.append(f"    {json.dumps(name)}: {json.dumps(case)}")
    source = f"mlcommons/endpoints {commit} src/inference_endpoint/metrics/steady_state_diagnostics.py"
    FROZEN.parent.mkdir(exist_ok=True)
    cases = ",\n".join(lines)
    FROZEN.write_text(f'{{\n  "source": {json.dumps(source)},\n  "cases": {{\n{cases}\n  }}\n}}\n')


if __name__ == "__main__":
    freeze(*sys.argv[1:])
