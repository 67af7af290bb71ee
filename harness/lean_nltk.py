"""nltk without scikit-learn, scipy and pandas, which it imports where they are installed, and without a home.

Nothing here uses what they give it, and they take a second and 150 MB in each process. A user without a home
folder, as a container may have one, could not import it: it chooses a place for downloads.
"""

import os
import sys

_NOT_NEEDED = ("sklearn", "scipy", "pandas")


def load_nltk() -> None:
    """Import nltk; to be called before any other import of it."""
    modules: dict[str, object] = sys.modules  # type: ignore[assignment]
    hidden = [name for name in _NOT_NEEDED if name not in modules]
    modules.update(dict.fromkeys(hidden))  # None makes an import of the name an ImportError
    is_homeless = os.path.expanduser("~") == "~"  # noqa: PTH111 - pathlib raises there
    if is_homeless:
        os.environ["HOME"] = "/"
    try:
        import nltk  # noqa: F401
    finally:
        if is_homeless:
            del os.environ["HOME"]
        for name in hidden:
            del modules[name]
