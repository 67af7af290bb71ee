"""Attention sinks for SGLang's torch_native backend, which gpt-oss needs on a CPU without AMX.

Loaded through SGLang's own plugin entry point. Ask for ``--attention-backend intel_amx``: SGLang admits
it for gpt-oss on a CPU and falls back to torch_native where the CPU has no AMX.
"""

import contextvars
from collections.abc import Callable
from typing import Any

# The sinks of the layer that is being computed, shape (heads,): a logit that every query may attend
# to and that contributes no value.
_sinks: contextvars.ContextVar[Any] = contextvars.ContextVar("sinks", default=None)


def register() -> None:
    """Patch the backend: keep each layer's ``sinks`` argument and use it inside the attention."""
    from sglang.srt.layers.attention import torch_native_backend as backend

    plain = backend.scaled_dot_product_attention

    def attention(query: Any, key: Any, value: Any, **options: Any) -> Any:
        sinks = _sinks.get()
        if sinks is None:
            return plain(query, key, value, **options)
        return _attention_with_sinks(query, key, value, sinks, **options)

    backend.scaled_dot_product_attention = attention
    native = backend.TorchNativeAttnBackend
    native.forward_extend = _remembering_sinks(native.forward_extend)
    native.forward_decode = _remembering_sinks(native.forward_decode)
    # Data-parallel attention asks it, of the length of a row that fills up a batch; other backends answer 1.
    native.get_cpu_graph_seq_len_fill_value = lambda self: 1


def _remembering_sinks(forward: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(self: Any, *arguments: Any, sinks: Any = None, **options: Any) -> Any:
        token = _sinks.set(sinks)
        try:
            return forward(self, *arguments, **options)
        finally:
            _sinks.reset(token)

    return wrapped


def _attention_with_sinks(
    query: Any,
    key: Any,
    value: Any,
    sinks: Any,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    **_: Any,
) -> Any:
    """Shapes (..., heads, queries, head_dim) and (..., kv_heads, keys, head_dim); computed in float32."""
    import torch

    group = query.shape[-3] // key.shape[-3]
    key = key.repeat_interleave(group, -3).float()
    value = value.repeat_interleave(group, -3).float()
    scores = (query.float() @ key.transpose(-1, -2)) * (scale or query.shape[-1] ** -0.5)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        boolean = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, float("-inf")) if boolean else scores + attn_mask
    column = sinks.float().view(-1, 1, 1).expand(*scores.shape[:-1], 1)
    weights = torch.cat([scores, column], -1).softmax(-1)[..., :-1]
    return (weights @ value).to(query.dtype)
