"""Start options of SGLang, as it reports them, that make a run another one than the rules say."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from harness.record.settled import ServerInfo
from sut.servers.server_checks import grouped
from sut.wire.answer_checks import UNREADABLE

# Below 1 it accepts drafts more often than speculative sampling does.
_ACCEPTANCE = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
_WATERMARKS = ("watermark_default_enabled", "watermark_enforce_all")
# What every request names itself.
_ALWAYS_ASKED = {"max_new_tokens", "temperature", "top_p", "top_k", "skip_special_tokens"}


def setting_deviations(facts: Sequence[ServerInfo]) -> Iterator[str]:
    """Deviations: servers whose settings make the answers another model's, or drawn by other parameters."""

    def lossy(fact: ServerInfo) -> str | None:
        found = [f"{name} {value}" for name in _ACCEPTANCE if (value := fact.settings.get(name, 1.0)) != 1.0]
        if not fact.settings.get("speculative_algorithm") or not found:
            return None
        return f" keeps drafted tokens that the model would not have drawn ({', '.join(found)}, expected 1)"

    def sampled_otherwise(fact: ServerInfo) -> str | None:
        added = _preferred(fact).keys() - _ALWAYS_ASKED
        if not added:
            return None
        return f" adds sampling parameters to each request ({', '.join(sorted(added))}), expected none"

    def marked(fact: ServerInfo) -> str | None:
        return " marks its answers (watermark)" if any(map(fact.settings.get, _WATERMARKS)) else None

    for check in (lossy, sampled_otherwise, marked):
        yield from grouped(facts, check)


def _preferred(fact: ServerInfo) -> dict[str, Any]:
    """SGLang's --preferred-sampling-params, which count where a request has none of the name."""
    try:
        found = msgspec.json.decode(str(fact.settings.get("preferred_sampling_params") or "{}"))
    except UNREADABLE:
        return {}
    return found if isinstance(found, dict) else {}


def setting_warnings(facts: Sequence[ServerInfo]) -> Iterator[str]:
    """A warning about a server that changes the configuration of its model."""

    def changed(fact: ServerInfo) -> str | None:
        change = fact.settings.get("json_model_override_args", "{}")
        if change in ("", "{}"):
            return None
        return f" changes its model's configuration ({change}), which must still compute what the rules' does"

    return grouped(facts, changed)


def prefix_cache_warnings(facts: Sequence[ServerInfo]) -> Iterator[str]:
    """A warning about an SGLang that was started with its prefix cache, before it has served from it."""

    def kept(fact: ServerInfo) -> str | None:
        if fact.settings.get("disable_radix_cache") is not False:
            return None
        return (
            " keeps a KV cache across queries, which the closed division does not allow; start it with "
            "--disable-radix-cache"
        )

    return grouped(facts, kept)
