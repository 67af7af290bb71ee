"""YAML of others: what is read, what is refused, each in one line; ours is stable."""

import pytest
import yaml

from harness.errors import ConfigError
from harness.yaml_files import MOST_BYTES, parse_yaml, read_yaml, write_yaml

BILLION_LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [*{before}, *{before}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
REFUSED = {
    "aliases that multiply": (BILLION_LAUGHS, "anchor"),
    "an anchor that nothing uses": ("a: &here 1", "line 1"),
    "lists in lists": ("[" * 100_000, "nested deeper"),
    "tables in tables": ("\n".join(" " * n + "a:" for n in range(200)), "nested deeper"),
    "a tag": ("a: !!python/object/apply:os.system [true]", "a tag in line 1"),
    "a tag that its text contradicts": ("a: !!bool maybe", "a tag"),
    "a list that never ends": ("a: [1, 2", "line 1"),
    "a month that does not exist": ("a: 2026-13-01", "month"),
    "a number of 5000 digits": ("a: " + "9" * 5000, "digits"),
    "two documents": ("a: 1\n---\nb: 2", "document"),
    "a byte that is no text": (b"a: \xff", "utf-8"),
    "a character that YAML forbids": ("a: \x00", "position 3"),
    "a key that cannot be one": ("? [1, 2]\n: 3", "unhashable"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_plain_yaml_is_one_line(tmp_path, text, said):
    path = tmp_path / "seeds.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as error:
        read_yaml(path)
    message = str(error.value)
    assert message.startswith(f"{path}: ")
    assert said in message
    assert "\n" not in message
    assert len(message) < 600


def test_a_file_of_10_mb_is_refused_before_it_is_parsed(tmp_path, monkeypatch):
    path = tmp_path / "large.yaml"
    path.write_bytes(b"[" * 10_000_000)
    monkeypatch.setattr(yaml, "parse", None)  # would raise TypeError
    with pytest.raises(ConfigError, match=str(MOST_BYTES)):
        read_yaml(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_yaml(tmp_path / "none.yaml")


def test_values_survive_being_written_and_read():
    same = [1, 2]
    value = {
        "z": 18446744073709551615,
        "cohort": "2026-10-C1",
        "number as text": "010",
        "off": "off",
        "share": 1e-05,
        "whole": 3.0,
        "none": None,
        "twice": same,
        "again": same,
        "text": "ä: # no comment\nsecond line " + "long " * 100,
        "empty": {"list": [], "table": {}},
    }
    text = write_yaml(value)
    assert parse_yaml(text.encode(), "ours") == value
    assert yaml.safe_load(text) == value
    assert write_yaml(parse_yaml(text.encode(), "ours")) == text
    assert list(parse_yaml(text.encode(), "ours")) == list(value)
