"""Serve a causal language model by transformers' own code.

Under torchrun the model is divided among the processes by transformers' tensor-parallel plan.
"""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import torch
import transformers
from aiohttp import web
from reference_server.app import Facts, ReferenceServer
from reference_server.batch import Batch, UnknownCacheError
from reference_server.engine import Engine
from reference_server.ranks import LeadingBatch, Ranks, Rows, is_leader, world_size
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.distributed import DistributedConfig

_TO_END_S = 10.0  # time in which answers in progress are told of the end
_BACKLOG = 1024


def main() -> int:
    """Serve until a signal. Returns 2 where the model cannot be loaded, 1 where it has failed."""
    arguments = _arguments()
    try:
        model = _load(arguments)
        rows: Rows = Batch(model)
    except (OSError, ValueError, ImportError, RuntimeError, UnknownCacheError) as error:
        return _report(f"{arguments.model_path}: {error}", 2)
    if world_size() == 1:
        return _serve(arguments, rows, model)
    ranks = Ranks()
    if not is_leader():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # the leader gets it, too, and ends the others
        ranks.follow(rows)
        return 0
    code = _serve(arguments, LeadingBatch(rows, ranks), model)
    if not code:
        ranks.send("end")
    return code


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="serve.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--model-path", required=True, help="model folder or Hugging Face name")
    parser.add_argument("--revision", help="commit of a Hugging Face model")
    parser.add_argument(
        "--dummy-weights", action="store_true", help="random weights: the path needs a config.json only"
    )
    parser.add_argument("--served-model-name", help="name to report (default: the model's path)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=30000, help="port (default: %(default)s)")
    parser.add_argument(
        "--max-batch-size", type=_count, default=16, help="requests generated together (default: %(default)s)"
    )
    parser.add_argument("--context-length", type=_count, help="prompt plus answer (default: the model's)")
    parser.add_argument(
        "--dtype", choices=("auto", "bfloat16", "float16", "float32"), default="auto", help="of the weights"
    )
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: cuda where there is one"
    )
    return parser.parse_args()


def _report(error: str, code: int) -> int:
    print("serve.py:", " ".join(error.split()), file=sys.stderr)
    return code


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected an integer of at least 1")
    return int(text)


def _load(arguments: argparse.Namespace) -> Any:
    """The model, on its device, or this process's part of it."""
    if arguments.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before anything asks for a GPU
    has_gpu = torch.cuda.is_available()
    if arguments.device == "cuda" and not has_gpu:
        raise ValueError("--device cuda, but torch finds no GPU; use --device cpu")
    path, revision = arguments.model_path, arguments.revision
    if path.startswith(("/", ".")) and not Path(path).is_dir():
        raise ValueError("no such folder")
    config = AutoConfig.from_pretrained(path, revision=revision)
    placement: dict[str, Any] = {}
    if world_size() > 1:
        if not config.get_text_config().base_model_tp_plan:
            raise ValueError(f"transformers has no tensor-parallel plan for {config.model_type}; use --tp 1")
        placement["distributed_config"] = DistributedConfig(tp_plan="auto")
    elif has_gpu:
        placement["device_map"] = "cuda"
    if arguments.dummy_weights:
        return _random(config, arguments.dtype, "cuda" if has_gpu else "cpu").eval()
    model = AutoModelForCausalLM.from_pretrained(
        path, config=config, revision=revision, dtype=arguments.dtype, **placement
    )
    return model.eval()


def _random(config: Any, dtype: str, device: str) -> Any:
    """A model with random weights, always the same; transformers has no random numbers in MXFP4 or FP8."""
    if world_size() > 1:
        raise ValueError("--dummy-weights is for one process; use --tp 1, with fewer --layers")
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=config.dtype if dtype == "auto" else dtype)


def _serve(arguments: argparse.Namespace, rows: Rows, model: Any) -> int:
    engine = Engine(rows, _ends(model), arguments.max_batch_size, model.device)
    server = ReferenceServer(engine, _facts(arguments, model))
    thread = threading.Thread(target=_run, args=(engine, server), name="engine", daemon=True)
    thread.start()
    ready = f"serving {arguments.model_path} at http://{arguments.host}:{arguments.port}"
    try:
        web.run_app(
            server.application(),
            host=arguments.host,
            port=arguments.port,
            print=lambda *_: print(ready, flush=True),
            access_log=None,
            backlog=_BACKLOG,
            shutdown_timeout=_TO_END_S,
            handler_cancellation=True,  # a client that hangs up frees its row
        )
    except OSError as error:
        return _report(f"{arguments.host}:{arguments.port}: {error}", 2)
    thread.join(_TO_END_S)
    if thread.is_alive():
        return _report(f"the step in progress did not end within {_TO_END_S:g} s", 1)
    return _report(server.failure, 1) if server.failure else 0


def _run(engine: Engine, server: ReferenceServer) -> None:
    """The engine's thread. An error there leaves the ranks out of step: the server ends."""
    try:
        engine.run()
    except Exception as error:
        server.failure = f"the model has failed: {type(error).__name__}: {error}".splitlines()[0]
        signal.raise_signal(signal.SIGTERM)
        raise


def _ends(model: Any) -> frozenset[int]:
    """The model's end tokens, from its generation_config.json or config.json."""
    found = model.generation_config.eos_token_id
    return frozenset([] if found is None else [found] if isinstance(found, int) else found)


def _facts(arguments: argparse.Namespace, model: Any) -> Facts:
    config = model.config.get_text_config()
    longest = config.max_position_embeddings
    return Facts(
        model_path=arguments.model_path,
        served_model_name=arguments.served_model_name or arguments.model_path,
        load_format="dummy" if arguments.dummy_weights else "auto",
        revision=getattr(model.config, "_commit_hash", None) or arguments.revision,
        version=f"transformers {transformers.__version__}, torch {torch.__version__}",
        context_length=min(arguments.context_length or longest, longest),
        vocab_size=config.vocab_size,
        tp_size=world_size(),
        dtype=str(model.dtype).removeprefix("torch."),
        max_running_requests=arguments.max_batch_size,
    )


if __name__ == "__main__":
    sys.exit(main())
