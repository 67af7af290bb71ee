"""OpenAI's endpoints in the spellings of vLLM, SGLang, llama.cpp, trtllm-serve and Dynamo: requests.

A request carries an id in the header ``X-Request-Id``, which vLLM prefers to one in the body, and every chunk
of vLLM's answer has ``cmpl-``, ``chatcmpl-`` or ``generate-tokens-`` and that id.

**Answers of ids** follow the run's ``skip_special_tokens``, which bears on text only. **Answers of text** are
encoded again, so all tokens have to be in them: special tokens are asked for, the end token among them, in
whatever spelling a server has for it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from harness.config.generation import SamplingParameters
from harness.config.protocol import Answers, Api, Dialect, Protocol
from sut.wire.answer_checks import given
from sut.wire.chunk_answer import ChatIdAnswer, ChunkAnswer, DynamoAnswer, IdAnswer
from sut.wire.chunks import FIELDS
from sut.wire.llamacpp import NEUTRAL as LLAMACPP_NEUTRAL
from sut.wire.sglang import opening_with_rid
from sut.wire.text_answer import TextAnswer
from sut.wire.wire import Form

_OF_REQUEST = ("model", "stream", "stream_options")
_CHAT = ("chat", "chat-ids")
# vLLM and SGLang take what a request does not name from the model's generation_config.json.
_NEUTRAL = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


def _opening(request_id: str, body_bytes: int) -> bytes:
    """The id as a header."""
    return b"X-Request-Id: %b\r\nContent-Length: %d\r\n\r\n{" % (request_id.encode(), body_bytes)


def _common(parameters: SamplingParameters, model: str) -> dict[str, Any]:
    """The options of which all servers have the same names."""
    options: dict[str, Any] = {
        "model": model,
        "max_tokens": parameters.max_new_tokens,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "stream": parameters.stream,
        **given(min_tokens=parameters.min_new_tokens, seed=parameters.seed),
    }
    if parameters.stream:
        options["stream_options"] = {"include_usage": True}
    return options


def _as_it_is(api: Api) -> dict[str, Any]:
    """For a text that has all of its prompt's tokens; sut/prepare.py says otherwise for one that has not."""
    return {"add_special_tokens": False} if api == "completions-text" else {}


def _vllm(parameters: SamplingParameters, model: str, *, api: Api, answers: Answers) -> dict[str, Any]:
    """vLLM's names: without ``include_stop_str_in_output`` the end token is not in the text."""
    if answers == "ids":
        back = {"skip_special_tokens": parameters.skip_special_tokens, "return_token_ids": True}
    else:
        back = {"skip_special_tokens": False, "include_stop_str_in_output": True}
    options = _common(parameters, model) | {"top_k": parameters.top_k or -1} | _NEUTRAL
    return options | back | _as_it_is(api) | parameters.extra


def _vllm_generate(
    parameters: SamplingParameters, model: str, *, api: Api, answers: Answers
) -> dict[str, Any]:
    """vLLM's ``/inference/v1/generate``, served with ``--enable-scale-out``."""
    options = _common(parameters, model)
    outer = {name: options.pop(name) for name in [*options] if name in _OF_REQUEST}
    sampling = options | {
        "top_k": max(parameters.top_k, 0),  # its front end in Rust refuses -1
        "skip_special_tokens": parameters.skip_special_tokens,
    }
    return {"sampling_params": sampling | parameters.extra, **outer}


def _sglang(parameters: SamplingParameters, model: str, *, api: Api, answers: Answers) -> dict[str, Any]:
    """SGLang's names: ``no_stop_trim`` keeps the end token, reasoning that is not separated its markers."""
    if answers == "ids":
        back = {"skip_special_tokens": parameters.skip_special_tokens, "return_token_ids": True}
    else:
        back = {"skip_special_tokens": False, "no_stop_trim": True}
        if api in _CHAT:
            back["separate_reasoning"] = False
    options = _common(parameters, model) | {"top_k": parameters.top_k or -1} | _NEUTRAL
    return options | back | parameters.extra


def _trtllm(parameters: SamplingParameters, model: str, *, api: Api, answers: Answers) -> dict[str, Any]:
    """The names of trtllm-serve, which refuses fields that it does not know, ``return_token_ids`` among them.

    Tested with its own request models, post-processing and HTTP front end (tests/engines/trtllm_sources.py).
    Without detokenization each choice of a completion has its new ids in ``token_ids``; a chat has no such
    option, and gpt-oss's, streamed, lacks the text of its last step. Answers have an id of their own, not the
    request's; versions without ``_ensure_stream_metadata`` give each chunk another one, and call the last
    one, with the usage, a chat's.

    The end token is among the ids with the default TorchSampler, which appends a token before it looks for
    an end (``_torch/pyexecutor/sampler``). With ``sampler_type: TRTLLMSampler`` and with TensorRT engines the
    tokenizer's end token is missing: their kernels do not count it. The other end tokens of
    ``generation_config.json`` are stop words for this server (``sampling_params.py``), kept only with
    ``include_stop_str_in_output``.
    """
    options = _common(parameters, model) | {
        "top_k": max(parameters.top_k, 0),  # it refuses -1 and writes "off" as 0
        "skip_special_tokens": parameters.skip_special_tokens if answers == "ids" else False,
        "include_stop_str_in_output": True,
    }
    if answers == "ids":
        options["detokenize"] = False
    if parameters.stream:
        # By default 1.2 has a usage in every event: a third more bytes, which nobody needs.
        options["stream_options"] |= {"continuous_usage_stats": False}
    return options | _as_it_is(api) | parameters.extra


def _llamacpp(parameters: SamplingParameters, model: str, *, api: Api, answers: Answers) -> dict[str, Any]:
    """llama.cpp's names: special tokens are in its text, but for the end token."""
    without_minimum = msgspec.structs.replace(parameters, min_new_tokens=None)  # it has none
    return (
        _common(without_minimum, model)
        | {
            "top_k": max(parameters.top_k, 0),
            "cache_prompt": False,
        }
        | LLAMACPP_NEUTRAL
        | parameters.extra
    )


def _dynamo(parameters: SamplingParameters, model: str, *, api: Api, answers: Answers) -> dict[str, Any]:
    """The names of Dynamo, which refuses fields that it does not know; 1.6.1's frontend."""
    skip = parameters.skip_special_tokens if answers == "ids" else False
    back: dict[str, Any] = {"skip_special_tokens": skip}
    if api != "chat-ids" and answers == "ids":
        back["nvext"] = {"extra_fields": _DYNAMO_IDS}
    options = {"top_k": parameters.top_k or -1, "include_stop_str_in_output": True}
    return _common(parameters, model) | options | back | parameters.extra


_DYNAMO_IDS = ["completion_token_ids", "prompt_token_ids"]
# What stands for messages where a server takes none although the prompt is ids.
_NO_MESSAGES = b'"messages":[{"role":"user","content":"."}],'
_OPTIONS = {"openai": _vllm, "sglang": _sglang, "trtllm": _trtllm, "llamacpp": _llamacpp, "dynamo": _dynamo}
_HEADS: Mapping[Api, tuple[str, bytes, bytes]] = {
    "generate": ("/inference/v1/generate", b'{"token_ids":', b","),
    "completions": ("/v1/completions", b'{"prompt":', b","),
    "completions-text": ("/v1/completions", b'{"prompt":', b","),
    # The prompt is first, where what an answer repeats of it is compared with it.
    "chat-ids": ("/v1/chat/completions", b'{"prompt_token_ids":', b',"messages":[],'),
    "chat": ("/v1/chat/completions", b'{"messages":', b","),
}


def _form(dialect: Dialect, api: Api, answers: Answers) -> Form:
    path, head, after = _HEADS[api]
    if api == "chat-ids" and dialect == "sglang":
        head, after = b'{"input_ids":', b"," + _NO_MESSAGES
    elif api == "chat-ids" and dialect == "dynamo":
        head = b'{"nvext":{"token_data":'
        back = b',"extra_fields":%b' % msgspec.json.encode(_DYNAMO_IDS) if answers == "ids" else b""
        after = back + b"}," + _NO_MESSAGES
    options = _vllm_generate if api == "generate" else _OPTIONS[dialect]
    return Form(
        path=path,
        fields=FIELDS,
        answers=_reader(dialect, api, answers),
        options=partial(options, api=api, answers=answers),
        head=head,
        after_prompt=after,
        opening=opening_with_rid if dialect == "sglang" else _opening,
        names_model=True,
        ids_may_change=dialect == "trtllm",
    )


def _reader(dialect: Dialect, api: Api, answers: Answers) -> type[ChunkAnswer]:
    if answers == "text":
        return TextAnswer
    if dialect == "dynamo":
        return DynamoAnswer
    return ChatIdAnswer if api in _CHAT else IdAnswer


_IDS: tuple[Api, ...] = ("completions", "chat-ids", "completions-text", "chat")
_OFFERS: Mapping[Dialect, tuple[tuple[Api, ...], tuple[Api, ...]]] = {
    "openai": (("completions", "generate", "chat-ids", "completions-text", "chat"), _IDS),
    "sglang": (_IDS, _IDS),  # its chat has ids in complete answers only
    "trtllm": (("completions", "completions-text"), _IDS),
    "llamacpp": ((), ("completions", "completions-text", "chat")),
    "dynamo": (_IDS, _IDS),
}
"""The APIs of each dialect whose answers have ids, and those whose answers have text, the best one first."""
_ANSWERS: tuple[Answers, ...] = ("ids", "text")

FORMS: Mapping[Protocol, Form] = {
    Protocol(dialect, api, answers): _form(dialect, api, answers)
    for dialect, offers in _OFFERS.items()
    for answers, apis in zip(_ANSWERS, offers, strict=True)
    for api in apis
}
"""Every protocol of these endpoints; those of a dialect in the order in which they are preferred."""
