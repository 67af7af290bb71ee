"""Published data that lie beside a checkout and are no part of it; tests skip where they are absent."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SHARED_DATA = Path(os.environ.get("HARNESS_SHARED_DATA", ROOT.parent / "shared" / "data"))
