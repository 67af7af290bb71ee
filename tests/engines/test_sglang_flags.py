"""What sglang/run_server.sh passes is understood by SGLang's own argument parser."""

import json
import shlex

import pytest

from harness.config.benchmark import load_benchmark
from harness.record.settled import ServerInfo
from harness.submission.building.readme import server_start
from sut.servers.discovery import discover
from sut.servers.info_pages import _SETTINGS
from tests.engines import sglang_server as sglang
from tests.scripts.test_run_server import COMMANDS, DEFAULTS, EAGLE, RUN_SERVER, changed, dry_run
from tests.sut.pages import pages

pytestmark = pytest.mark.engine

# Reads a JSON list of command lines, prints for each what SGLang made of it or its error.
PARSE = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser(exit_on_error=False)
ServerArgs.add_cli_args(parser)
def understood(line):
    try:
        return vars(parser.parse_args(line))
    except (argparse.ArgumentError, SystemExit) as error:
        return str(error)
json.dump([understood(line) for line in json.load(sys.stdin)], sys.stdout, default=str)
"""

# As the server's start resolves them, for /server_info.
RESOLVE = """
import json, sys
from sglang.srt.server_args import prepare_server_args
arguments = prepare_server_args(json.load(sys.stdin))
arguments.resolve_once()
json.dump(arguments.resolved_dict(), sys.stdout, default=str)
"""
CPU = ("--device", "cpu", "--attention-backend", "intel_amx")


def sglang_arguments(words: list[str]) -> list[str]:
    return words[words.index("sglang.launch_server") + 1 :]


def test_every_command_line_is_understood(sglang_installed):
    """Its values arrive under SGLang's names; a flag that SGLang does not have is not understood."""
    speculative = "--enable_speculative_decode --tp 2 --served-model-name 'two words'"
    lines = [*(line for line, *_ in COMMANDS), speculative, "--cuda-graph-max-bs 8"]
    given = json.dumps([sglang_arguments(dry_run(RUN_SERVER, *shlex.split(line))) for line in lines])
    *understood, unknown = json.loads(sglang.python("-c", PARSE, stdin=given).splitlines()[-1])
    assert isinstance(unknown, str)
    assert [answer for answer in understood if isinstance(answer, str)] == []
    values = understood[-1]
    expected = changed(DEFAULTS, EAGLE, "--tp-size 2 --enable-metrics True --disable-radix-cache True")
    got = {flag: str(values[flag.removeprefix("--").replace("-", "_")]) for flag in expected}
    assert got == expected
    assert values["served_model_name"] == "two words"


@pytest.mark.parametrize(
    ("arguments", "replicas"),
    [
        ([], 1),
        (["--dp", "2"], 2),
        (["--dp", "2", "--tp", "2", "--enable-dp-attention"], 2),
        (["--tp", "4", "--attn-dp-size", "2"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_512_requests_run_on_each_replica(sglang_installed, arguments, replicas):
    """The options of run_server.sh, as SGLang resolves them and the harness reads it from /server_info."""
    words = dry_run(RUN_SERVER, "--model_path", str(sglang.make_model()), *CPU, *arguments)
    output = sglang.python("-c", RESOLVE, stdin=json.dumps(sglang_arguments(words)))
    table = {"/health": b"", "/model_info": {"model_path": "m"}}
    table["/server_info"] = json.loads(output.splitlines()[-1])
    with pages(table) as url:
        (fact,) = discover([url], "sglang", None, 20)
    assert (fact.dp_size, fact.max_running_requests) == (replicas, 512 * replicas)


def test_the_command_of_a_published_readme_is_understood(sglang_installed):
    """Each setting that a server reports comes back as the flag that sets it."""
    values = dict.fromkeys(_SETTINGS, 2) | {
        "dtype": "bfloat16",
        "load_format": "dummy",
        "kv_cache_dtype": "fp8_e4m3",
        "quantization": "mxfp4",
    }
    values |= {"attention_backend": "triton", "moe_runner_backend": "triton", "schedule_policy": "fcfs"}
    values |= {"enable_dp_attention": True, "disable_radix_cache": True, "mem_fraction_static": 0.5}
    values |= {"speculative_algorithm": "EAGLE3", "speculative_draft_model_path": "eagle"}
    server = ServerInfo(url="", wire="sglang", engine="SGLang", model="m", context_length=99, settings=values)
    command = shlex.split(server_start(server, load_benchmark("gpt-oss-120b")))
    given = json.dumps([sglang_arguments(command)])
    (answer,) = json.loads(sglang.python("-c", PARSE, stdin=given).splitlines()[-1])
    assert not isinstance(answer, str), answer
    assert {name: answer[name] for name in values} == values
    assert (answer["model_path"], answer["context_length"]) == ("m", 99)
