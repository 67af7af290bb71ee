"""LiveCodeBench: the program that an output hands in.

Official: in the final section the last ```python block, else the last plain one; the whole text likewise
where there is none. Strict: the last fenced block of the final channel, as Markdown reads it.
"""

import re
import textwrap
from dataclasses import dataclass

from harness.grading.grade import Reason
from harness.grading.harmony import Output
from harness.grading.screen import Screen

_OFFICIAL_PYTHON = re.compile(r"```python(.*?)```", re.DOTALL)
_OFFICIAL_PLAIN = re.compile(r"```(.*?)```", re.DOTALL)
_FENCE_SCREEN = Screen(("```",))
_OFFICIAL_TAG = re.compile(r"^(?:python|py)\s*\n", re.IGNORECASE)
_FENCE = re.compile(r"^([ \t>]*+(?:(?:[-*+]|\d{1,3}[.)])[ \t]++)?+)(`{3,}+|~{3,}+)[ \t]*+([\w+-]*+)[^`]*+$")
_FENCE_BEHIND_TEXT = re.compile(r"()(?<!`)(`{3,}+)(python3?|py3?)[ \t]*+$", re.IGNORECASE)
_CLOSED_BEHIND_CODE = re.compile(r"^([^`]*[^`\s][^`]*)`{3,}[ \t]*$")
_QUOTED = re.compile(r"^[ \t]*+> ?", re.MULTILINE)
_PYTHON_NAMES = frozenset({"python", "python3", "py", "py3"})


@dataclass(frozen=True, slots=True)
class Extraction:
    """``code`` is None where there is none, and ``reason`` then says why."""

    code: str | None
    reason: Reason = Reason.NO_ANSWER


def official(output: Output) -> Extraction:
    """The program by the published rules."""
    code = _official_block(output.official_final) if output.official_final is not None else None
    if code is None and output.may_match(_FENCE_SCREEN):
        code = _official_block(output.text)
    return Extraction(code, output.defect or Reason.NO_ANSWER)


def _official_block(text: str) -> str | None:
    if blocks := _OFFICIAL_PYTHON.findall(text):
        return str(blocks[-1]).strip()
    if blocks := _OFFICIAL_PLAIN.findall(text):
        return _OFFICIAL_TAG.sub("", str(blocks[-1]).strip())
    return None


def strict(output: Output) -> Extraction:
    """The program that the final channel ends with."""
    if output.strict_final is None:
        return Extraction(None, output.defect or Reason.NO_FINAL)
    blocks = fenced_blocks(output.strict_final)
    python = [code for name, code in blocks if name in _PYTHON_NAMES]
    chosen = python or [code for name, code in blocks if not name]
    if not chosen:
        return Extraction(None, output.defect or Reason.NO_ANSWER)
    return Extraction(chosen[-1])


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """Language in lower case and content of each closed block, in order."""
    blocks: list[tuple[str, str]] = []
    opening: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        closes = opening is not None and (_closes(fence, opening) if fence else None)
        if opening is None or (fence and fence[3]):
            opening, lines = fence or _FENCE_BEHIND_TEXT.search(line), []
        elif closes or (not fence and (last := _CLOSED_BEHIND_CODE.match(line))):
            content = lines if closes else [*lines, last[1].rstrip()]  # type: ignore[index]
            blocks.append((opening[3].lower(), _outdented("\n".join(content), opening[1])))
            opening = None
        else:
            lines.append(line)
    return blocks


def _closes(fence: re.Match[str], opening: re.Match[str]) -> bool:
    """A fence closes one of the same kind that is no longer than itself."""
    return fence[2][0] == opening[2][0] and len(fence[2]) >= len(opening[2])


def _outdented(code: str, lead: str) -> str:
    """Without the marks of the quotation or the indentation of the list item that the block is in."""
    if ">" in lead:
        code = _QUOTED.sub("", code)
    return textwrap.dedent(code) if lead or code[:1] in (" ", "\t") else code
