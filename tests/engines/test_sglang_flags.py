"""What sglang/run_server.sh passes is understood by SGLang's own argument parser."""

import json
import shlex

import pytest

from harness.config.benchmark import load_benchmark
from harness.record.settled import ServerInfo
from harness.submission.building.readme import server_start
from sut.client.endpoint import Access
from sut.servers.discovery import discover
from sut.servers.info_pages import _SETTINGS
from tests.engines import sglang_server as sglang
from tests.scripts.test_run_server import COMMANDS, DEFAULTS, EAGLE, RUN_SERVER, changed, dry_run
from tests.sut.pages import pages

pytestmark = pytest.mark.engine

# Reads a JSON list of command lines, prints for each what SGLang made of it or its error. Those of a model
# that is here are resolved as the server's start does it, for /server_info.
UNDERSTAND = """
import argparse, json, os, sys
from sglang.srt.server_args import ServerArgs, prepare_server_args
parser = argparse.ArgumentParser(exit_on_error=False)
ServerArgs.add_cli_args(parser)
def understood(line):
    try:
        arguments = parser.parse_args(line)
    except (argparse.ArgumentError, SystemExit) as error:
        return str(error)
    if not os.path.isdir(arguments.model_path):
        return vars(arguments)
    resolved = prepare_server_args(line)
    resolved.resolve_once()
    return resolved.resolved_dict()
answers = [understood(line) for line in json.load(sys.stdin)]
json.dump(answers, sys.stdout, default=str)
"""
CPU = ("--device", "cpu", "--attention-backend", "intel_amx")
SPECULATIVE = "--enable_speculative_decode --tp 2 --served-model-name 'two words'"
LINES = [*(line for line, *_ in COMMANDS), SPECULATIVE, "--cuda-graph-max-bs 8"]
REPLICAS = {"": 1, "--dp 2": 2, "--dp 2 --tp 2 --enable-dp-attention": 2, "--tp 4 --attn-dp-size 2": 2}


@pytest.fixture(scope="module")
def answers(sglang_installed):
    """SGLang's to LINES, to REPLICAS, and to the command of a published README, from one start of it."""
    here = ("--model_path", str(sglang.make_model()), *CPU)
    commands = [dry_run(RUN_SERVER, *shlex.split(line)) for line in LINES]
    commands += [dry_run(RUN_SERVER, *here, *shlex.split(line)) for line in REPLICAS]
    commands.append(published())
    given = [words[words.index("sglang.launch_server") + 1 :] for words in commands]
    *said, last = json.loads(sglang.python("-c", UNDERSTAND, stdin=json.dumps(given)).splitlines()[-1])
    of_lines, of_replicas = said[: len(LINES)], said[len(LINES) :]
    return of_lines, dict(zip(REPLICAS, of_replicas, strict=True)), last


def test_every_command_line_is_understood(answers):
    """Its values arrive under SGLang's names; a flag that SGLang does not have is not understood."""
    *understood, unknown = answers[0]
    assert isinstance(unknown, str)
    assert [answer for answer in understood if isinstance(answer, str)] == []
    values = understood[-1]
    expected = changed(DEFAULTS, EAGLE, "--tp-size 2 --enable-metrics True --disable-radix-cache True")
    got = {flag: str(values[flag.removeprefix("--").replace("-", "_")]) for flag in expected}
    assert got == expected
    assert values["served_model_name"] == "two words"


@pytest.mark.parametrize("arguments", REPLICAS)
def test_512_requests_run_on_each_replica(answers, arguments):
    """The options of run_server.sh, as SGLang resolves them and the harness reads it from /server_info."""
    replicas = REPLICAS[arguments]
    table = {"/health": b"", "/model_info": {"model_path": "m"}, "/server_info": answers[1][arguments]}
    with pages(table) as url:
        (fact,) = discover([url], "sglang", Access(), 20)
    assert (fact.dp_size, fact.max_running_requests) == (replicas, 512 * replicas)


def settings():
    """Each that a server reports."""
    values = {name: 2 for name in _SETTINGS if not name.startswith("watermark")} | {
        "dtype": "bfloat16",
        "load_format": "dummy",
        "kv_cache_dtype": "fp8_e4m3",
        "quantization": "mxfp4",
    }
    values |= {"attention_backend": "triton", "moe_runner_backend": "triton", "schedule_policy": "fcfs"}
    values |= {"enable_dp_attention": True, "disable_radix_cache": True, "mem_fraction_static": 0.5}
    values |= {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "eagle"}
    values |= {"speculative_accept_threshold_single": 0.5, "speculative_accept_threshold_acc": 0.5}
    values |= {"json_model_override_args": '{"a":1}', "preferred_sampling_params": '{"min_p":0.1}'}
    return values


def published():
    facts = {"wire": "sglang", "engine": "SGLang", "model": "m", "context_length": 99}
    server = ServerInfo(url="", settings=settings(), **facts)
    return shlex.split(server_start(server, load_benchmark("gpt-oss-120b")))


def test_the_command_of_a_published_readme_is_understood(answers):
    """Each setting comes back as the flag that sets it."""
    answer, values = answers[2], settings()
    assert not isinstance(answer, str), answer
    as_json = {"preferred_sampling_params": {"min_p": 0.1}}
    assert {name: answer[name] for name in values} == values | as_json
    assert (answer["model_path"], answer["context_length"]) == ("m", 99)
