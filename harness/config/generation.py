"""Generation parameters: the rules', or a user's JSON file, and where the two differ."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from harness.config.benchmark import Benchmark
from harness.config.option_checks import check_choice, optional_file
from harness.config.run_options import ClientOptions, Stream
from harness.errors import ConfigError
from harness.json_files import read_json

_ALIASES = {
    "max_output_len": "max_new_tokens",
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "sampling_seed": "seed",
    "streaming": "stream",
}
MOST_NUMBER = (1 << 31) - 1  # most tokens or samples that are accepted
_SEED_LIMIT = 1 << 63  # SGLang's and vLLM's
_NESTED = "generation_config"  # most published files hold their values under this key
# Keys of published files that no server is sent, with the reason.
_NOT_APPLIED = {
    "reasoning_effort": "the effort is part of the prompts",
    "name": "--benchmark names the model",
    "min_output_len": "an answer ends where the model ends it",
    "runtime_beam_width": "servers sample without beams",
    "use_stop_tokens": "an answer ends at the model's own end tokens",
    "eos_token_id": "the server takes it from the model",
    "bos_token_id": "it is part of the prompts",
}
_NEUTRAL = {"min_output_len": 1, "runtime_beam_width": 1}  # values without effect


class SamplingParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The sampling options of every request."""

    max_new_tokens: int
    temperature: float
    top_p: float
    top_k: int
    """0: off"""
    skip_special_tokens: bool
    stream: bool
    min_new_tokens: int | None = None
    """sent where it is not None, under the name of each protocol"""
    seed: int | None = None
    """the same"""
    extra: dict[str, Any] = {}
    """sent to the server as it is"""

    def __post_init__(self) -> None:
        """Refuse what no server can do; raises ValueError."""
        if not 1 <= self.max_new_tokens <= MOST_NUMBER:
            raise ValueError(f"max_new_tokens is {self.max_new_tokens}, expected 1 to {MOST_NUMBER}")
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}, expected 0 or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}, expected more than 0 and at most 1")
        if self.top_k < -1:
            raise ValueError(f"top_k is {self.top_k}, expected -1 or 0 (off) or more")
        if not 0 <= (least := self.min_new_tokens or 0) <= self.max_new_tokens:
            raise ValueError(f"min_new_tokens is {least}, expected 0 to {self.max_new_tokens}")
        if abs(self.seed or 0) >= _SEED_LIMIT:
            raise ValueError(f"seed is {self.seed}, expected a number of at most 63 bits")


class ResolvedGeneration(msgspec.Struct, frozen=True):
    """The parameters of a run, and what is to be said of them."""

    parameters: SamplingParameters
    deviations: tuple[str, ...]
    """a line for each parameter that is not the rules'"""
    warnings: tuple[str, ...]
    """keys of the user's file that have no effect"""


def resolve_generation(
    options: ClientOptions, official: SamplingParameters, *, timed: bool
) -> ResolvedGeneration:
    """The official parameters with what the options ask for. Raises ConfigError.

    ``timed``: whether the times of tokens are measured, for which answers are streamed.
    """
    check_choice("stream", options.stream, get_args(Stream))
    config = optional_file("--generation-config", options.generation_config)
    parameters = resolve_parameters(official, config, options.max_new_tokens)
    # Where no times are measured, as in Offline, the rules leave the choice, and auto means complete answers,
    # whatever a generation config has.
    stream = timed and parameters.stream if options.stream == "auto" else options.stream == "on"
    parameters = msgspec.structs.replace(parameters, stream=stream)
    if not timed:
        official = msgspec.structs.replace(official, stream=stream)
    return ResolvedGeneration(
        parameters, deviations(official, parameters), not_applied(options.generation_config)
    )


def official_parameters(benchmark: Benchmark, *, accuracy: bool) -> SamplingParameters:
    """The parameters that the rules lock for one mode."""
    most = benchmark.dataset(accuracy=accuracy).max_new_tokens
    return SamplingParameters(max_new_tokens=most, **msgspec.structs.asdict(benchmark.generation))


def resolve_parameters(
    official: SamplingParameters, config: Path | None, max_new_tokens: int | None
) -> SamplingParameters:
    """Official values, overridden by a JSON file, overridden by --max-new-tokens. Raises ConfigError."""
    parameters = official
    if config is not None:
        known = set(msgspec.structs.asdict(official)) - {"extra"}
        parameters = _changed(parameters, _split_extra(config, _values(config), known), str(config))
    if max_new_tokens is not None:
        parameters = _changed(parameters, {"max_new_tokens": max_new_tokens}, "--max-new-tokens")
    return parameters


def not_applied(config: Path | None) -> tuple[str, ...]:
    """A line that names each key of a JSON file which has no effect on what is sent. Raises ConfigError."""
    if config is None:
        return ()
    whole, values = _read_json(config), _values(config)
    found = [
        f"{key} {value!r} ({_NOT_APPLIED[key]})"
        for key, value in values.items()
        if key in _NOT_APPLIED and value != _NEUTRAL.get(key)
    ]
    if _NESTED in whole:
        beside = [key for key in whole if key != _NESTED and not key.startswith("_")]
        found += [f"{key} (it stands beside {_NESTED})" for key in beside]
    return (f"{config}: not applied: {', '.join(found)}",) if found else ()


def _values(config: Path) -> dict[str, Any]:
    """The parameters of a file, whether they stand at its top or under ``generation_config``."""
    whole = _read_json(config)
    nested = whole.get(_NESTED)
    if nested is not None and not isinstance(nested, dict):
        raise ConfigError(f"{config}: {_NESTED} is {nested!r}, expected an object of generation parameters")
    return whole if nested is None else nested


def deviations(official: SamplingParameters, actual: SamplingParameters) -> tuple[str, ...]:
    """One line for each parameter that is not the rules'.

    The rules' text asks for min_new_tokens = 1 where the reference sends none: both are by the rules. At
    temperature 0 the likeliest token is the answer's, whatever top_p, top_k and seed are. With top_k 1 and
    another temperature it need not be: vLLM keeps all tokens as likely as the first (apply_top_k_only), as
    logits of 16 bits often are, and draws one.
    """
    if official.min_new_tokens is None and actual.min_new_tokens == 1:
        actual = msgspec.structs.replace(actual, min_new_tokens=None)
    if official.temperature == actual.temperature == 0:
        actual = msgspec.structs.replace(
            actual, top_p=official.top_p, top_k=official.top_k, seed=official.seed
        )
    wanted, got = _comparable(official), _comparable(actual)
    return tuple(
        f"generation {key} is {got.get(key)!r}, the rules say {wanted.get(key, 'nothing')!r}"
        for key in {**got, **wanted}
        if key not in wanted or key not in got or got[key] != wanted[key]
    )


def _comparable(parameters: SamplingParameters) -> dict[str, Any]:
    """Every parameter that is set, by name; two spellings of the same are one."""
    values = msgspec.structs.asdict(parameters)
    extra: dict[str, Any] = values.pop("extra")
    if values["top_k"] == -1:  # SGLang's and vLLM's spelling of off
        values["top_k"] = 0
    values["min_new_tokens"] = values["min_new_tokens"] or None  # 0 has no effect
    return {name: value for name, value in values.items() if value is not None} | extra


def _changed(parameters: SamplingParameters, values: Mapping[str, Any], source: str) -> SamplingParameters:
    try:
        return msgspec.convert({**msgspec.structs.asdict(parameters), **values}, SamplingParameters)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {error}") from error


def _split_extra(path: Path, values: Mapping[str, Any], known: set[str]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for key, value in values.items():
        if key.startswith("_"):
            continue
        name = _ALIASES.get(key, key)
        if name in named:
            twins = " and ".join(other for other in values if _ALIASES.get(other, other) == name)
            raise ConfigError(f"{path}: {twins} are the same parameter; keep one of them")
        named[name] = value
    extra = {key: value for key, value in named.items() if key not in known and key not in _NOT_APPLIED}
    return {key: value for key, value in named.items() if key in known} | {"extra": extra}


def _read_json(path: Path) -> dict[str, Any]:
    remedy = "expected a JSON object of generation parameters"
    return read_json(path, dict[str, Any], remedy, f"--generation-config {path}")
