"""Flags of the reference implementations and of other harnesses, and what to type here in their place.

Imports stay light, since ``--help`` uses them.
"""

from harness.cli.parser import Synonym

_FIRST_SAMPLES = "only the first N samples are used, and a run of fewer than all is not official"
SYNONYMS = {
    "--mode": Synonym("--scenario"),
    "--dataset-path": Synonym("--input-file"),
    "--total-sample-count": Synonym("--max-samples", _FIRST_SAMPLES),
    "--num-samples": Synonym("--max-samples", _FIRST_SAMPLES),
    "--output-log-dir": Synonym("--results"),
    "--audit-conf": Synonym("--audit-config"),
    "--vllm": Synonym("--backend", "the server is started separately, by vllm/run_server.sh", "vllm"),
}


def flag_of(word: str) -> str:
    """The flag of a run that a word is read as: ``--results`` for ``--output_log_dir=DIR``."""
    name = word.partition("=")[0].replace("_", "-")
    return SYNONYMS[name].flag if name in SYNONYMS else name


_MODEL = (
    "the server is started with its model (sglang/run_server.sh or vllm/run_server.sh --model_path MODEL); "
    "here --benchmark names the rules, such as --benchmark llama3.1-8b"
)
_SETTING = "is set where the server is started, such as vllm/run_server.sh; see docs/guide/servers.md"
MODES = (
    "the modes getp, chat and generate are './mlperf prompts run -i FILE -o FILE', './mlperf prompts chat' "
    "and './mlperf prompts generate'"
)
API = ("--api-type", "--endpoint", "--endpoint-type")
_API = "'--api completions', chat-ids, completions-text or chat says how the server is asked"
_SETTINGS = (
    *("--batch-size", "--device", "--dtype", "--gpu-count", "--tensor-parallel-size", "--data-parallel-size"),
    *("--dp", "--dp-size", "--tp", "--tp-size"),
)
_RATE = (
    "write the rate, as *.Server.target_qps = 10 or *.Offline.target_qps = 10, into a copy of "
    "configs/user.conf for --user-conf"
)
_SERVER = "'--server-url http://HOST:PORT' names the servers"
_LLAMACPP = "'openai' is for a llama.cpp server of yours, 'embedded' starts a small one here"
_TRTLLM = "'trtllm' is for TensorRT-LLM's trtllm-serve; no backend is for Triton's own protocol"
# What belongs to the server or to another program, and other names of a backend.
ELSEWHERE = {
    **dict.fromkeys(("--model-path", "--model-name", "--model"), _MODEL),
    **dict.fromkeys(_SETTINGS, _SETTING),
    **dict.fromkeys(API, _API),
    **dict.fromkeys(("--url", "--base-url", "--host", "--port", "--api-server"), _SERVER),
    "--api-model-name": "the server is asked for the name of its model; omit the flag",
    "--lg-model-name": "'--benchmark' names the rules, such as llama3.1-8b or llama3.1-8b-edge",
    "--api-key": "set it in the environment, as SGLANG_API_KEY or OPENAI_API_KEY, and omit the flag",
    "--mlperf-accuracy-file": "'./mlperf score --mlperf-log FILE' scores a log",
    "-m": MODES,
    "-z": "the tokenizer is the model's; omit the flag",
    **{f"--backend {name}": _LLAMACPP for name in ("llama", "llama-cpp", "llama.cpp", "llamacpp")},
    **{f"--backend {name}": _TRTLLM for name in ("tensorrt", "tensorrt-llm", "triton", "trt")},
}
# Of run_mlperf.py alone.
RUN_ALONE = {
    "--test-mode": "'--accuracy' is accuracy mode, without it performance is measured; omit the flag",
    "--skip-samples": "a run has all samples, a trial the first N by --max-samples; omit the flag",
}
# Of programs in which LoadGen sets the rate and writes the logs.
LOADGEN = {
    **dict.fromkeys(("--target-qps", "--qps", "--request-rate"), _RATE),
    "--log-dir": "'--results DIR' is the folder of all runs; the logs are in DIR/SCENARIO/MODE",
    "--enable-log-trace": "the times of every query are in requests.parquet; omit the flag",
}
# The evaluators'.
SCORE_ELSEWHERE = {
    "--dtype": "the width of ids is read from the log; omit the flag",
    "--total-sample-count": "the number of samples is the dataset's; omit the flag",
}
SCORE_SYNONYMS = {
    "--mlperf-accuracy-file": Synonym("--mlperf-log", "the accuracy log of a run"),
    "--model-name": Synonym("--tokenizer"),
}
EVERY_REPLICA = {
    "--min-replicas": "every replica is measured; name with --server-url only replicas that work"
}
