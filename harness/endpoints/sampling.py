"""How a configuration of the official client samples, against the rules of a benchmark."""

from collections.abc import Iterator

from harness.config.benchmark import Benchmark
from harness.endpoints.official_files import Fields, is_number, performance_dataset, shown, table

_LENGTH = "max_new_tokens"
_OFF = (-1, 0)  # values of top_k
_NEUTRAL = {"repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}


def sampling_differences(config: Fields, benchmark: Benchmark) -> Iterator[tuple[str, str, str]]:
    """Name, value and expected value of each parameter of config.yaml that is not the rules'.

    Those of performance requests. What config.yaml leaves to the server is not known, but for max_new_tokens,
    which the client always writes: its default is 1024. A higher one cuts no answer, and is in the client's
    own examples. At temperature 0 the likeliest token is the answer's, whatever top_p and top_k are.
    """
    override = table(performance_dataset(config), "generation_config_override")
    stated = {**table(config, "model_params"), **override}
    rules, most = benchmark.generation, benchmark.dataset(accuracy=False).max_new_tokens
    expected: dict[str, float] = {"temperature": rules.temperature, **_NEUTRAL}
    if rules.temperature:
        expected |= {"top_p": rules.top_p, "top_k": rules.top_k}
    for name, value in expected.items():
        got = stated.get(name)
        is_off = name == "top_k" and value in _OFF and got in _OFF
        if got is not None and got != value and not is_off:
            yield name, shown(got), f"{value:g}"
    if _LENGTH in stated and not (is_number(length := stated[_LENGTH]) and length >= most):
        yield _LENGTH, shown(stated[_LENGTH]), f"{most:,} or more"
