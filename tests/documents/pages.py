"""The shell commands of the documents, in the order in which a reader meets them."""

import re
from pathlib import Path

from tests.runs import ROOT

README = ROOT / "README.md"
PAGES = sorted([README, ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
_BLOCK = re.compile(r"(?ms)^```bash\n(.*?)^```")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[str]:
    """The text of every ```` ```bash ```` block of a page."""
    return _BLOCK.findall(page.read_text())


def outside_blocks(page: Path) -> str:
    return _BLOCK.sub("", page.read_text())
