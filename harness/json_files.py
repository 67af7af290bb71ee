"""JSON of others, read as the one object that a file should hold."""

import json
from pathlib import Path
from typing import Any


def read_fields(path: Path) -> dict[str, Any] | str:
    """The object in a JSON file, or the reason why there is none, such as ``is missing``."""
    text = ""
    try:
        if not path.is_file():
            return "is missing"
        text = path.read_text(encoding="utf-8")
        fields = json.loads(text)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        return "is not UTF-8"
    except json.JSONDecodeError as error:
        if text.startswith("\ufeff"):
            return "begins with a byte order mark, which JSON does not allow: save it as UTF-8 without one"
        return f"is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    return fields if isinstance(fields, dict) else "is not a JSON object"
