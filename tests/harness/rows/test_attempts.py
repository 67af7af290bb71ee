"""What the attempts at one file must share."""

import pytest

from harness.errors import ConfigError
from harness.rows.attempts import EvalSettings, answered
from tests.kit import parameters

SETTINGS = EvalSettings(
    benchmark="gpt-oss-120b", dataset_sha256="0", skip=0, samples=3, parameters=parameters(), backend="vllm"
)


def test_answers_as_ids_and_as_text_are_not_mixed(tmp_path):
    """An earlier version asked for ids alone and kept no word of it."""
    for answers in ("ids", "text"):
        settled = answered(tmp_path, SETTINGS, answers)
        assert settled.answers == answers
        assert answered(tmp_path, settled, answers) == settled
    with pytest.raises(ConfigError, match=r"answers text, this one has ids.*--restart"):
        answered(tmp_path, settled, "ids")
