"""JSON files of others."""

import json

import pytest

from harness.json_files import read_fields


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a\ud800", "a\ufffd"),
        ("\udfff\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        ("\\ud800", "\\ud800"),  # a backslash, and letters
        ("\\ud83d\ude00", "\\ud83d\ufffd"),
        ('\\\\\ud800"', '\\\\\ufffd"'),
        ("\ud800\n", "\ufffd\n"),
    ],
)
def test_half_a_character_is_replaced_where_it_is_read(tmp_path, text, read):
    """It could neither be written nor be converted by msgspec."""
    (path := tmp_path / "fields.json").write_text(json.dumps({"text": text, text: 1}))
    assert read_fields(path) == {"text": read, read: 1}
    path.write_text('{"text": "\\uD800\\uDBFF\\uDFFF"}')
    assert read_fields(path) == {"text": "\ufffd\U0010ffff"}
