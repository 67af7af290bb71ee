"""The servers of a run: found, checked, started and watched."""

import sys

# httpx imports its command line wherever click and rich are installed, which costs more than the rest of it.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None: no such module
