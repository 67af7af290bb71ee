"""Generation parameters: the rules' table, a user's JSON file over it, and what deviates."""

import json
from itertools import zip_longest

import msgspec
import pytest

from harness.config.benchmark import load_benchmark
from harness.config.generation import deviations, not_applied, official_parameters, resolve_parameters
from harness.errors import ConfigError
from harness.files import read_decoded
from tests.runs import ROOT


@pytest.fixture(scope="module")
def official():
    return official_parameters(load_benchmark("gpt-oss-120b"), accuracy=False)


def resolve(official, tmp_path, config, max_new_tokens=None):
    path = tmp_path / "generation.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return resolve_parameters(official, path, max_new_tokens)


@pytest.mark.parametrize(
    ("name", "accuracy", "expected"),
    [
        ("gpt-oss-120b", False, (10240, 1.0, 1.0, 0, False, True)),
        ("gpt-oss-120b", True, (32768, 1.0, 1.0, 0, False, True)),
        ("deepseek-r1", False, (20000, 0.0, 1.0, 0, False, True)),
        ("llama3.1-8b", False, (128, 0.0, 1.0, 1, False, True, 1, 42)),
        ("llama3.1-8b-edge", False, (128, 0.0, 1.0, 1, False, True, 1, 42)),
    ],
)
def test_official_parameters(name, accuracy, expected):
    values = msgspec.structs.asdict(official_parameters(load_benchmark(name), accuracy=accuracy))
    assert values.pop("extra") == {}
    names = ("max_new_tokens", "temperature", "top_p", "top_k", "skip_special_tokens", "stream")
    names = (*names, "min_new_tokens", "seed")
    assert values == dict(zip_longest(names, expected))


# the rules' own values, by either spelling: none of it deviates
RULES = [
    {},
    {"temperature": 1, "top_p": 1.0, "top_k": 0},
    {"top_k": -1},
    {"streaming": True, "skip_special_tokens": False},
    {"max_output_len": 10240, "reasoning_effort": "low"},
    {"stream": True, "max_new_tokens": 10240},
    {"_comment": "a note"},
    {"min_tokens": 0, "seed": None},
    {"min_new_tokens": 1},  # inference_rules.adoc, "Additional inference parameters"
]


@pytest.mark.parametrize("config", RULES)
def test_the_rules_table_does_not_deviate(official, tmp_path, config):
    assert deviations(official, resolve(official, tmp_path, config)) == ()


# key, value, and the parameter that it sets where that has another name
OVERRIDES = [
    ("temperature", 0.5, None),
    ("top_p", 0.95, None),
    ("top_k", 1, None),
    ("skip_special_tokens", True, None),
    ("stream", False, None),
    ("streaming", False, "stream"),
    ("max_new_tokens", 1, None),
    ("max_output_len", 32768, "max_new_tokens"),
    ("max_tokens", 7, "max_new_tokens"),
    ("min_tokens", 7, "min_new_tokens"),
    ("min_new_tokens", 7, None),
    ("seed", 7, None),
    ("sampling_seed", -7, "seed"),
]


@pytest.mark.parametrize(("key", "value", "other_name"), OVERRIDES)
def test_an_override_arrives_and_is_one_deviation(official, tmp_path, key, value, other_name):
    field = other_name or key
    resolved = resolve(official, tmp_path, {key: value})
    assert resolved == msgspec.structs.replace(official, **{field: value})
    (line,) = deviations(official, resolved)
    assert line.split()[1:4] == [field, "is", f"{value!r},"]
    assert repr(getattr(official, field)) in line or getattr(official, field) is None


@pytest.mark.parametrize(("key", "value"), [("min_p", 0.1), ("stop", None), ("stop_token_ids", [7])])
def test_unknown_keys_travel_and_deviate(official, tmp_path, key, value):
    resolved = resolve(official, tmp_path, {key: value})
    assert resolved.extra == {key: value}
    (line,) = deviations(official, resolved)
    assert f"{key} is {value!r}" in line


# published files: name, benchmark, mode, parameters that deviate, keys that are not applied
IGNORED = ["use_stop_tokens", "eos_token_id", "bos_token_id", "name"]
PUBLISHED = [
    ("gpt-oss-120b_performance", "gpt-oss-120b", False, [], ["name"]),
    ("gpt-oss-120b_accuracy", "gpt-oss-120b", True, [], ["name"]),
    ("deepseek-r1", "deepseek-r1", False, [], IGNORED),
    ("llama3.1-8b", "llama3.1-8b", True, [], ["min_output_len", *IGNORED]),
]


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize(("file", "name", "accuracy", "deviate", "dropped"), PUBLISHED)
def test_published_files(tmp_path, file, name, accuracy, deviate, dropped, nested):
    official = official_parameters(load_benchmark(name), accuracy=accuracy)
    values = json.loads((ROOT / f"tests/data/generation/{file}.json").read_text())
    resolved = resolve(official, tmp_path, {"generation_config": values} if nested else values)
    assert resolved.extra == {}
    assert [line.split()[1] for line in deviations(official, resolved)] == deviate
    (line,) = not_applied(tmp_path / "generation.json")
    assert [name for name in {**values, "none": 0} if f" {name} " in line] == dropped


def test_what_stands_beside_nested_values_is_named(official, tmp_path):
    config = {"generation_config": {"temperature": 0.5, "min_p": 0.1}, "top_p": 0.5, "_note": "x"}
    resolved = resolve(official, tmp_path, config)
    assert (resolved.temperature, resolved.top_p, resolved.extra) == (0.5, 1.0, {"min_p": 0.1})
    (line,) = not_applied(tmp_path / "generation.json")
    assert "top_p" in line and "_note" not in line


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"temperature": 1.0, "seed": 7}, ["temperature", "seed"]),
        ({"temperature": 0.5, "top_k": 1}, ["temperature"]),  # vLLM draws among equals
        ({"top_k": 0, "top_p": 0.9, "seed": None}, []),  # greedy all the same
        ({"min_tokens": 0}, ["min_new_tokens"]),
        ({"min_new_tokens": None}, ["min_new_tokens"]),
        ({"seed": 42, "min_tokens": 1, "max_tokens": 128, "top_k": 1, "temperature": 0}, []),
    ],
)
def test_what_the_rules_name_and_a_file_takes_away_deviates(tmp_path, config, named):
    official = official_parameters(load_benchmark("llama3.1-8b"), accuracy=True)
    found = deviations(official, resolve(official, tmp_path, config))
    assert [line.split()[1] for line in found] == named


@pytest.mark.parametrize(
    ("rules", "asked", "deviate"),
    [(0, 0, 0), (0, -1, 0), (-1, 0, 0), (-1, -1, 0), (0, 1, 1), (-1, 1, 1), (1, 0, 1), (1, -1, 1)],
)
def test_top_k_off_has_two_spellings_and_is_not_greedy(official, rules, asked, deviate):
    wanted = msgspec.structs.replace(official, top_k=rules)
    assert len(deviations(wanted, msgspec.structs.replace(official, top_k=asked))) == deviate


def test_the_flag_wins_over_the_file_and_is_blamed_for_itself(official, tmp_path):
    assert resolve(official, tmp_path, {"max_new_tokens": 5}, 9).max_new_tokens == 9
    assert resolve_parameters(official, None, 9).max_new_tokens == 9
    with pytest.raises(ConfigError, match="--max-new-tokens"):
        resolve(official, tmp_path, {"max_new_tokens": 5}, 0)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"max_new_tokens": "5"}, "max_new_tokens"),
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": "1"}, "temperature"),
        ('{"temperature": NaN}', "JSON"),
        ('{"temperature": Infinity}', "JSON"),
        ('{"temperature": 1e999}', "range"),
        ({"top_p": 0}, "top_p is 0"),
        ({"top_p": 1.0001}, "top_p is 1.0001"),
        ({"top_p": None}, "top_p"),
        ({"top_k": -2}, "top_k is -2"),
        ({"top_k": True}, "top_k"),
        ({"min_tokens": -1}, "min_new_tokens is -1"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_new_tokens is 5"),
        ({"min_tokens": "1"}, "min_new_tokens"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 1, "sampling_seed": 2}, "sampling_seed"),
        ({"stream": 1}, "stream"),
        ({"skip_special_tokens": None}, "skip_special_tokens"),
        ([], "JSON object"),
        ("", "JSON object"),
        ('{"top_k": ', "JSON object"),
        ({"generation_config": 5}, "generation_config is 5"),
        ({"generation_config": {"top_p": 7}}, "top_p is 7"),
        # one parameter under both of its names: either order would drop one without a word
        ({"max_output_len": 5, "max_new_tokens": 7}, "max_output_len"),
    ],
)
def test_bad_values(official, tmp_path, config, message):
    with pytest.raises(ConfigError) as caught:
        resolve(official, tmp_path, config)
    text = str(caught.value)
    assert "generation.json" in text
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r'{"a": "\ud800"}', r"\ud800 is half of a character"),
        (r'{"\udc01": 1}', r"\udc01 is half of a character"),
        (r'{"a": "\ud83d\ude00"', "truncated"),
        ('{"a": 1,}', "malformed"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, text, words):
    path = tmp_path / "generation.json"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_decoded("file", path, msgspec.json.Decoder(dict).decode, "remedy")
    assert words in str(caught.value)
    assert str(caught.value).endswith("; remedy")


@pytest.mark.parametrize(
    ("decode", "text"), [(msgspec.json.decode, '{"top_k": 1}'), (msgspec.toml.decode, "top_k = 1")]
)
def test_a_byte_order_mark_is_no_part_of_a_users_file(decode, text, tmp_path):
    """As editors of Windows write it."""
    (path := tmp_path / "file").write_text(text, encoding="utf-8-sig")
    assert read_decoded("file", path, decode, "remedy") == {"top_k": 1}
