"""What identifies a server, and servers that were replaced by another one during a run.

A change is kept in the journal at the moment it is found: ``--resume`` must not take answers that may be of
another model, whatever ended the run.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

import msgspec
import numpy as np
import numpy.typing as npt

from harness.json_files import intact_lines
from harness.record.journal import Rows, read_journal
from harness.record.settled import ACCEPTANCE, WATERMARKS, ServerInfo
from harness.text import counted

Named = dict[str, str | int]

# Facts that stay the same as long as the server has the same model and was started in the same way.
_MODEL = ("model", "model_path", "revision", "weight_version", "vocabulary_size")
IDENTITY = (*_MODEL, "version", "context_length", "engine")
# Start options, by SGLang's names, by which a server's answers are others, or drawn otherwise.
_NUMERICS = (
    "quantization",
    "dtype",
    "kv_cache_dtype",
    "json_model_override_args",
    "preferred_sampling_params",
    *ACCEPTANCE,
    *WATERMARKS,
)
# Start options by which the same weights take other memory: some are copied to each GPU, others padded.
_PLACEMENT = {"tp_size", "pp_size", "ep_size", "attn_dp_size", "enable_dp_attention", "moe_runner_backend"}
_DEFAULT = "default"
_WEIGHTS_TOLERANCE = 0.1  # SGLang measures the free memory of a GPU before and after it loads them
_FILE, _SETTINGS_FILE = "changes.jsonl", "settings.jsonl"
HASH = re.compile(r"[0-9a-f]{40}")  # of a commit, which names weights for good


class ServerChange(msgspec.Struct, frozen=True, kw_only=True):
    """A server that named another model or version when it was asked again; it got no more queries then."""

    url: str
    replica: int
    """its place in `servers`"""
    was: Named
    """what differs, at the start of the run"""
    now: Named
    """the same when it was asked again"""
    right_until_ns: int
    """when it last named what it did at the start, on the clock of requests.parquet; 0: only then"""
    answers: int = 0
    """its answers since then, which may be of either: with any the run is INVALID"""

    @property
    def reason(self) -> str:
        """``http://n7: model A is now B``."""
        return f"{self.url}: {differing_text(self.was, self.now)}"

    @property
    def doubt(self) -> str:
        """The same as a reason of a verdict."""
        since = "since it was last asked" if self.right_until_ns else "of this run"
        answers = f"its {counted(self.answers, 'answer')} {since} may be of either"
        return f"{self.reason}: {answers}; start it as it was"


def differing(before: ServerInfo, now: ServerInfo, names: Sequence[str] = IDENTITY) -> tuple[Named, Named]:
    """The facts in which two answers differ, before and now, where both name them.

    Servers behind a router may have their files in different places and be of different versions: there
    path and version are no difference.
    """
    if before.router is not None:
        names = [name for name in names if name not in ("model_path", "version")]
    pairs = {name: (getattr(before, name), getattr(now, name)) for name in names}
    found = {name: pair for name, pair in pairs.items() if None not in pair and pair[0] != pair[1]}
    if before.router is None:
        found |= _other_numbers(before, now)
    return {name: one for name, (one, _) in found.items()}, {name: one for name, (_, one) in found.items()}


def _other_numbers(before: ServerInfo, now: ServerInfo) -> dict[str, tuple[str, str]]:
    """What makes other numbers of one model; an option that only one of two reports is at its default."""
    pairs = setting_pairs(before, now)
    found = {name: (str(one), str(two)) for name, (one, two) in pairs.items() if name in _NUMERICS}
    one, two = before.weights_gb, now.weights_gb
    if one and two and _PLACEMENT.isdisjoint(pairs) and is_other_size(one, two):
        found["weights"] = f"{one:g} GB", f"{two:g} GB"
    return found


def is_other_size(one_gb: float, other_gb: float) -> bool:
    """Whether two sizes of weights, as a server measures them, are of different weights."""
    return abs(one_gb - other_gb) > _WEIGHTS_TOLERANCE * max(one_gb, other_gb)


def setting_pairs(before: ServerInfo, now: ServerInfo) -> dict[str, tuple[object, object]]:
    """Start options in which two answers differ; "default" where one does not name it."""
    if not before.settings or not now.settings:
        return {}
    pairs = {
        name: (before.settings.get(name, _DEFAULT), now.settings.get(name, _DEFAULT))
        for name in (*before.settings, *now.settings)
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def other_model(before: ServerInfo, now: ServerInfo) -> str:
    """The facts in which a server's model differs from an earlier one's; "" for none.

    Its path is one of them where no revision is known, and only the folder's name of it: copies move.
    """
    one, two = before.model_path, now.model_path
    # vLLM, and SGLang without --served-model-name, call the path their model.
    paths = {"model_path"} if (one, two) != (before.model, now.model) else {"model_path", "model"}
    was, is_now = differing(before, now, [name for name in _MODEL if name not in paths])
    # Behind a router a path that is no name is no difference, as in ``differing``.
    compared = before.router is None or "model" in paths
    unknown = None in (before.revision, now.revision)
    if not was and compared and unknown and one and two and folder_name(one) != folder_name(two):
        was, is_now = {"model_path": one}, {"model_path": two}
    return differing_text(was, is_now)


def folder_name(path: str) -> str:
    """The name of a model's folder; in a Hugging Face cache, that of the model."""
    parts = [part for part in PurePath(path).parts if part != "snapshots" and not HASH.fullmatch(part)]
    return parts[-1].rpartition("--")[2].lower() if parts else path


def no_longer_named(before: ServerInfo, now: ServerInfo) -> list[str]:
    """The facts that were named before and are missing now, such as while a server starts."""
    return [name for name in IDENTITY if getattr(before, name) is not None and getattr(now, name) is None]


def differing_text(was: Named, now: Named) -> str:
    """``model A is now B, version 1 is now 2``."""
    names = [name for name in was if name != "model_path" or "model" not in was]
    return ", ".join(f"{name.replace('_', ' ')} {was[name]} is now {now[name]}" for name in names)


def keep_change(journal: Path, change: ServerChange) -> None:
    """Append a change to the journal. Raises OSError."""
    _append(journal / _FILE, change)


def keep_settings(journal: Path, server: ServerInfo) -> None:
    """Append a server whose start options are others than at the start of the run. Raises OSError."""
    _append(journal / _SETTINGS_FILE, server)


def with_other_settings(journal: Path) -> Iterator[ServerInfo]:
    """The servers of ``keep_settings``."""
    path = journal / _SETTINGS_FILE
    if path.exists():
        yield from intact_lines(path, ServerInfo)


def _append(path: Path, value: msgspec.Struct) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(value) + b"\n")


def in_doubt(rows: Rows, changes: Sequence[ServerChange]) -> npt.NDArray[np.bool_]:
    """Whether each row is an answer of a changed server since it was last known to be right."""
    found = np.zeros(len(rows), dtype=bool)
    for change in changes:
        of_server = (rows["replica"] == change.replica) & (rows["failure"] == 0)
        found |= of_server & (rows["last_byte_ns"] > change.right_until_ns)
    return found


def counted_changes(rows: Rows, changes: Sequence[ServerChange]) -> tuple[ServerChange, ...]:
    """The changes with the number of answers in doubt."""
    return tuple(msgspec.structs.replace(one, answers=int(in_doubt(rows, [one]).sum())) for one in changes)


def usable_samples(journal: Path) -> frozenset[int] | None:
    """The samples of a journal whose answers are certainly the run's model's; None: all of them."""
    path = journal / _FILE
    if not path.exists():
        return None
    try:
        changes = [msgspec.json.decode(line, type=ServerChange) for line in path.read_bytes().splitlines()]
    except (msgspec.DecodeError, UnicodeDecodeError):
        changes = []
    if not changes:  # cut short, such as by a full disk: it is not known which server has changed
        return frozenset()
    rows = read_journal(journal).rows
    good = rows[(rows["failure"] == 0) & ~in_doubt(rows, changes)]
    return frozenset(good["sample_index"].tolist())
