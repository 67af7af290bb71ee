"""config.yaml of a point: the official client's own package reads it as that point."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from msgspec import structs

from harness.endpoints.run_folder import CONFIG
from harness.endpoints.tree.client_config import IDS, client_config, write_config
from tests.endpoints_kit import curve, point_run

CLIENT = "HARNESS_ENDPOINTS_CLIENT"  # the official client's executable
READ = """
import json, sys
from pathlib import Path
from inference_endpoint.config.schema import BenchmarkConfig
read = [BenchmarkConfig.from_yaml_file(Path(one)) for one in sys.argv[1:]]
print(json.dumps([json.loads(one.model_dump_json()) for one in read]))
"""


@pytest.mark.engine
@pytest.mark.skipif(CLIENT not in os.environ, reason=f"{CLIENT} names no official client")
@pytest.mark.parametrize("wire", ["sglang", "openai", "llamacpp"])
def test_the_official_client_reads_the_point(wire, tmp_path):
    from msgspec.structs import replace

    plan, files = curve(), []
    for point in plan.points:
        run = point_run(point, plan)
        run = replace(run, servers=tuple(replace(server, wire=wire) for server in run.servers))
        (tmp_path / point.name).mkdir()
        write_config(tmp_path / point.name, run, column=IDS)
        files.append(tmp_path / point.name / CONFIG)
    done = subprocess.run(
        [Path(os.environ[CLIENT]).with_name("python"), "-c", READ, *files],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for point, read in zip(plan.points, json.loads(done.stdout.splitlines()[-1]), strict=True):
        load = read["settings"]["load_pattern"]
        if point.offline == "dedicated":
            assert (read["type"], load["type"]) == ("offline", "max_throughput")
        else:
            assert (read["type"], load["target_concurrency"]) == ("online", point.concurrency)
        runtime = read["settings"]["runtime"]
        assert runtime["n_samples_to_issue"] == point.passes * plan.samples
        assert runtime["dataloader_random_seed"] == plan.seeds.sample_index
        assert read["endpoint_config"]["endpoints"] == ["http://node0:30000"]


@pytest.mark.parametrize("given", [{}, {"seed": 7}])
def test_only_a_seed_that_was_sent_is_one(given):
    run = point_run(curve().points[3])
    sent = structs.replace(run, parameters=structs.replace(run.parameters, **{"seed": None} | given))
    found = client_config(sent, column=IDS)["model_params"]
    assert {name: found[name] for name in found if name == "seed"} == given


def test_a_dedicated_offline_run_sends_all_at_once():
    found = [client_config(point_run(point), column=IDS) for point in curve().points]
    loads = [(one["type"], one["settings"]["load_pattern"]["type"]) for one in found]
    assert loads == [("online", "concurrency")] * 7 + [("offline", "max_throughput")]


def test_a_point_that_was_run_is_repeated_as_it_was_issued():
    point = curve().points[3]
    before, after = point_run(point, issued=0), point_run(point, issued=7 * 6396)
    assert (
        client_config(before, column=IDS)["settings"]["runtime"]["n_samples_to_issue"] == point.passes * 6396
    )
    runtime = client_config(after, column=IDS)["settings"]["runtime"]
    assert runtime.pop("n_samples_to_issue") == 7 * 6396
    # Versions of the client have different names of the shortest time, and refuse those of others.
    assert runtime.keys() == {"scheduler_random_seed", "dataloader_random_seed"}


@pytest.mark.parametrize(
    ("asked", "api_type"),
    [
        ({"wire": "sglang"}, "sglang"),
        ({"wire": "sglang", "api": "completions"}, "openai_completions"),
        ({"wire": "openai"}, "openai_completions"),
        ({"wire": "openai", "api": "generate"}, "openai_completions"),
        ({"wire": "llamacpp"}, "openai_completions"),
    ],
)
def test_the_adapter_is_that_of_the_api(asked, api_type):
    run = point_run(curve().points[0])
    run = structs.replace(run, servers=tuple(structs.replace(one, **asked) for one in run.servers))
    assert client_config(run, column=IDS)["endpoint_config"]["api_type"] == api_type


def test_the_file_has_no_aliases(tmp_path):
    write_config(tmp_path, point_run(curve().points[0]), column="tok_input")
    text = (tmp_path / CONFIG).read_text()
    assert "&" not in text
    assert yaml.safe_load(text)["datasets"][0]["parser"] == {"input_tokens": "tok_input"}
