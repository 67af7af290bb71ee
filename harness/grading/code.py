"""LiveCodeBench: the program that an output hands in.

Official: in the final section the last ```python block, else the last plain one; the whole text likewise
where there is none. Strict: the last fenced block of the final channel, fences alone on their lines.
"""

import re
from dataclasses import dataclass

from harness.grading.harmony import Output
from harness.grading.verdict import Reason

_OFFICIAL_PYTHON = re.compile(r"```python(.*?)```", re.DOTALL)
_OFFICIAL_PLAIN = re.compile(r"```(.*?)```", re.DOTALL)
_OFFICIAL_TAG = re.compile(r"^(?:python|py)\s*\n", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[ \t]*([\w+-]*)[^\n`]*$", re.MULTILINE)
_PYTHON_NAMES = frozenset({"python", "python3", "py", "py3"})


@dataclass(frozen=True, slots=True)
class Extraction:
    """``code`` is None where there is none, and ``reason`` then says why."""

    code: str | None
    reason: Reason = Reason.NO_ANSWER


def official(output: Output) -> Extraction:
    """The program by the published rules."""
    code = _official_block(output.section) if output.section is not None else None
    code = _official_block(output.text) if code is None else code
    return Extraction(code, output.defect or Reason.NO_ANSWER)


def _official_block(text: str) -> str | None:
    if blocks := _OFFICIAL_PYTHON.findall(text):
        return str(blocks[-1]).strip()
    if blocks := _OFFICIAL_PLAIN.findall(text):
        return _OFFICIAL_TAG.sub("", str(blocks[-1]).strip())
    return None


def strict(output: Output) -> Extraction:
    """The program that the final channel ends with."""
    if output.final is None:
        return Extraction(None, output.defect or Reason.NO_FINAL)
    blocks = fenced_blocks(output.final)
    python = [code for name, code in blocks if name in _PYTHON_NAMES]
    chosen = python or [code for name, code in blocks if not name]
    if not chosen:
        return Extraction(None, output.defect or Reason.NO_ANSWER)
    return Extraction(chosen[-1])


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """Language in lower case and content of each closed block, in order."""
    blocks = []
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is None or fence[1]:
            opening = fence
        else:
            blocks.append(
                (opening[1].lower(), text[opening.end() + 1 : max(opening.end() + 1, fence.start() - 1)])
            )
            opening = None
    return blocks
