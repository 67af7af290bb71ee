"""The APIs in which servers are asked, as the recorded servers of tests/data/wires answer them.

Each makes of the steps of an answer the blocks of its body: an event and the end mark, or one JSON document.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from . import words
from .protocol import DONE, Options, Request, Rule, Step, compact, expected_ids, raw_document, sse

SYSTEM_PROMPT = (200006, 17360, 200008, 3575, 553, 17554, 162016, 200007)
"""What the template of a chat adds, and all that it makes of an empty one."""


class Api:
    """One API: how a prompt is read, and how an answer is written."""

    cumulative = False

    def __init__(self, options: Options) -> None:
        self.options = options

    def prompt_of(self, request: Request) -> list[int]:
        """The prompt as it was sent."""
        raise NotImplementedError

    def taken_of(self, request: Request) -> list[int]:
        """The prompt as the server takes it."""
        return request.prompt_ids

    def gives_ids(self, request: Request) -> bool:
        """Whether the answer has ids."""
        return True

    def rule(self, request: Request) -> Rule:
        """The rule of its answers: text without ids must encode to the ids that it is of."""
        return expected_ids if request.gets_ids else words.expected_words

    def render(self, request: Request, steps: list[Step]) -> list[bytes]:
        """The blocks of the body."""
        request.made = steps[-1].count
        if not request.streams:
            return [raw_document(steps) or compact(self._document(request, steps[-1]))]
        blocks = [block for step in steps for block in self._events(request, step)]
        return [*blocks, *(sse(compact(event)) for event in self._after(request, steps)), DONE]

    def _events(self, request: Request, step: Step) -> list[bytes]:
        return [step.raw or sse(compact(self._event(request, step)))]

    def _event(self, request: Request, step: Step) -> dict[str, Any]:
        """One event of a stream."""
        raise NotImplementedError

    def _document(self, request: Request, step: Step) -> dict[str, Any]:
        """An answer that is no stream; its only step has all of it."""
        return self._event(request, step)

    def _after(self, request: Request, steps: list[Step]) -> list[dict[str, Any]]:
        """Events behind the steps."""
        return []

    def _said(self, request: Request, ids: list[int]) -> str:
        if self.options.text is not None:
            return self.options.text(ids)
        return " tok" * len(ids) if request.gets_ids else words.text_of(ids)


class Generate(Api):
    """SGLang's ``/generate``."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.cumulative = options.cumulative

    def prompt_of(self, request: Request) -> list[int]:
        """Ids, or a text."""
        return _ids(request.body.get("input_ids") or request.body.get("text"))

    def _event(self, request: Request, step: Step) -> dict[str, Any]:
        meta = {
            "id": request.body.get("rid") or f"{request.index:032x}",
            "finish_reason": _sglang_finish(step),
            "prompt_tokens": len(request.taken_ids),
            "completion_tokens": step.count,
            "cached_tokens": 0,
        }
        return {"text": "", "output_ids": step.ids, "meta_info": meta}


class Completion(Api):
    """llama.cpp's ``/completion``: the finish reason is in an event of its own."""

    _STOPS: ClassVar = {"stop": "eos", "length": "limit"}

    def prompt_of(self, request: Request) -> list[int]:
        """Ids, or a text."""
        return _ids(request.body.get("prompt"))

    def _events(self, request: Request, step: Step) -> list[bytes]:
        if step.raw is not None or step.finish is None:
            return super()._events(request, step)
        said, end = self._event(request, step), self._event(request, Step([], step.count))
        return [sse(compact(said)), sse(compact(end | self._end(step)))]

    def _document(self, request: Request, step: Step) -> dict[str, Any]:
        return self._event(request, step) | self._end(step)

    def _event(self, request: Request, step: Step) -> dict[str, Any]:
        said = {"index": 0, "content": self._said(request, step.ids), "tokens": step.ids, "stop": False}
        return said | {
            "id_slot": 1,
            "tokens_predicted": step.count,
            "tokens_evaluated": len(request.taken_ids),
        }

    def _end(self, step: Step) -> dict[str, Any]:
        kind = None if step.finish is None else self._STOPS.get(step.finish, step.finish)
        named = {"stop": kind is not None, "model": self.options.facts.served_name, "truncated": False}
        return named | {"stop_type": kind, "stopping_word": ""}


class OpenAi(Api):
    """What OpenAI's two APIs share. An id is that of ``X-Request-Id``, as vLLM, or ``rid``, as SGLang has it.

    Where ``detokenize`` is false, answers have ids and no text, as TensorRT-LLM's by its sources.
    """

    prefix: ClassVar[str]
    kinds: ClassVar[Mapping[bool, str]]
    """``object`` of an answer and, under True, of an event."""

    def gives_ids(self, request: Request) -> bool:
        """Where they are asked for, and the server knows how."""
        asked = request.body.get("return_token_ids") or request.body.get("detokenize") is False
        return self.options.returns_ids and bool(asked or self._gives_nvext(request))

    def _gives_nvext(self, request: Request) -> bool:
        """Whether ids are asked for as Dynamo wants it."""
        return "completion_token_ids" in (request.body.get("nvext") or {}).get("extra_fields", ())

    def _with_ids(self, request: Request, answer: dict[str, Any], step: Step) -> dict[str, Any]:
        """With the ids of the step where the request wants them: in the choice, or as Dynamo beside it."""
        if not request.gets_ids:
            return answer
        if self._gives_nvext(request):
            return answer | {"nvext": {"completion_token_ids": step.ids}}
        answer["choices"][0]["token_ids"] = step.ids
        return answer

    def _envelope(self, request: Request) -> dict[str, Any]:
        given = request.headers.get("x-request-id", request.index)
        named = request.body.get("rid") or f"{self.prefix}{given}"
        model = self.options.facts.served_name
        return {"id": named, "object": self.kinds[request.streams], "created": 0, "model": model}

    def _document(self, request: Request, step: Step) -> dict[str, Any]:
        return self._event(request, step) | {"usage": _usage(request, step)}

    def _after(self, request: Request, steps: list[Step]) -> list[dict[str, Any]]:
        """The usage, if it is asked for."""
        if not (request.body.get("stream_options") or {}).get("include_usage"):
            return []
        return [self._envelope(request) | {"choices": [], "usage": _usage(request, steps[-1])}]


class Completions(OpenAi):
    """``/v1/completions`` with ids or text."""

    prefix = "cmpl-"
    kinds: ClassVar = {False: "text_completion", True: "text_completion"}

    def prompt_of(self, request: Request) -> list[int]:
        """Ids, or a text; Dynamo's ids come first."""
        return _token_data(request) or _ids(request.body.get("prompt"))

    def _event(self, request: Request, step: Step) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "text": self._said(request, step.ids), "logprobs": None}
        choice |= {"finish_reason": step.finish, "stop_reason": None}
        if request.body.get("detokenize") is False:
            choice |= {"text": "", "token_ids": step.ids, "avg_decoded_tokens_per_iter": 1.0}
            return self._envelope(request) | {"choices": [choice], "usage": None}
        if request.gets_ids and not self._gives_nvext(request):
            choice["prompt_token_ids"] = request.taken_ids if step.count == len(step.ids) else None
        return self._with_ids(request, self._envelope(request) | {"choices": [choice]}, step)


class Chat(OpenAi):
    """``/v1/chat/completions`` with messages, or with ids as TensorRT-LLM (and SGLang) take them.

    A stream begins with the role, and its finish reason is in an event without content.
    """

    prefix = "chatcmpl-"
    kinds: ClassVar = {False: "chat.completion", True: "chat.completion.chunk"}

    def prompt_of(self, request: Request) -> list[int]:
        """Ids, or the messages' contents."""
        return self._sent_ids(request) or self._templated(request)

    def taken_of(self, request: Request) -> list[int]:
        """Ids only where the server knows that a chat may have them."""
        if self._sent_ids(request) and not self.options.chat_ids:
            return self._templated(request) or list(SYSTEM_PROMPT)
        return request.prompt_ids

    def _sent_ids(self, request: Request) -> list[int]:
        body = request.body
        return _token_data(request) or list(body.get("prompt_token_ids") or body.get("input_ids") or [])

    def _templated(self, request: Request) -> list[int]:
        messages = request.body.get("messages") or []
        if self.options.template is not None:
            return self.options.template(messages)
        return [token for message in messages for token in words.ids_of(str(message["content"]))]

    def render(self, request: Request, steps: list[Step]) -> list[bytes]:
        """As every API, behind the role."""
        blocks = super().render(request, steps)
        return [sse(compact(self._role(request))), *blocks] if request.streams else blocks

    def _role(self, request: Request) -> dict[str, Any]:
        return self._chunk(request, {"role": "assistant", "content": ""}) | self._prompt_back(request)

    def _prompt_back(self, request: Request) -> dict[str, Any]:
        """Beside ids, but for Dynamo's."""
        given = request.gets_ids and not self._gives_nvext(request)
        return {"prompt_token_ids": request.taken_ids} if given else {}

    def _chunk(self, request: Request, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._envelope(request) | {"choices": [choice]}

    def _events(self, request: Request, step: Step) -> list[bytes]:
        if step.raw is not None:
            return [step.raw]
        said = [self._event(request, step)] if step.ids or step.finish is None else []
        end = [] if step.finish is None else [self._chunk(request, {}, step.finish)]
        return [sse(compact(event)) for event in (*said, *end)]

    def _event(self, request: Request, step: Step) -> dict[str, Any]:
        before = step.count - len(step.ids)
        chunk = self._chunk(request, self._fragment(request, step, self._part(request, before)))
        return self._with_ids(request, chunk, step)

    def _part(self, request: Request, position: int) -> str:
        """Of which part a token is."""
        parts = self.options.parts
        return parts[min(position * len(parts) // max(request.made, 1), len(parts) - 1)]

    def _fragment(self, request: Request, step: Step, part: str) -> dict[str, Any]:
        text = self._said(request, step.ids)
        if part != "tool_calls":
            return {part: text}
        begins = step.count == len(step.ids) or self._part(request, step.count - len(step.ids) - 1) != part
        named = {"id": "call-1", "type": "function"} if begins else {}
        function = {"arguments": text} | ({"name": "lookup"} if begins else {})
        return {part: [{"index": 0, **named, "function": function}]}

    def _document(self, request: Request, step: Step) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        for part in self.options.parts:
            places = range(step.count - len(step.ids), step.count)
            ids = [i for place, i in zip(places, step.ids, strict=True) if self._part(request, place) == part]
            if ids:
                message |= self._fragment(request, Step(ids, len(ids)), part)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": step.finish}
        answer = self._envelope(request) | {"choices": [choice], "usage": _usage(request, step)}
        return self._with_ids(request, answer | self._prompt_back(request), step)


class TokensInOut(Api):
    """vLLM's ``/inference/v1/generate``."""

    def prompt_of(self, request: Request) -> list[int]:
        """Ids."""
        return _ids(request.body.get("token_ids"))

    def _event(self, request: Request, step: Step) -> dict[str, Any]:
        weights = [{"version": self.options.facts.weight_version, "start": 0, "end": step.count}]
        choice = {"index": 0, "finish_reason": step.finish, "stop_reason": None, "token_ids": step.ids}
        choice |= {"weight_versions": weights if step.finish else None, "logprobs": None}
        return self._envelope(request) | {"usage": None, "choices": [choice]}

    def _envelope(self, request: Request) -> dict[str, Any]:
        given = request.headers.get("x-request-id") or request.body.get("request_id") or request.index
        return {"request_id": f"generate-tokens-{given}", "output_mode": "tokens"}

    def _document(self, request: Request, step: Step) -> dict[str, Any]:
        whole = {"model": self.options.facts.served_name, "created": 0, "prompt_token_ids": None}
        return self._event(request, step) | whole | {"usage": _usage(request, step)}

    def _after(self, request: Request, steps: list[Step]) -> list[dict[str, Any]]:
        """The usage, if it is asked for."""
        if not (request.body.get("stream_options") or {}).get("include_usage"):
            return []
        return [self._envelope(request) | {"usage": _usage(request, steps[-1]), "choices": []}]


APIS: Mapping[str, type[Api]] = {
    "/generate": Generate,
    "/completion": Completion,
    "/v1/completions": Completions,
    "/v1/chat/completions": Chat,
    "/inference/v1/generate": TokensInOut,
}


def _token_data(request: Request) -> list[int]:
    """The prompt as Dynamo takes it."""
    return list((request.body.get("nvext") or {}).get("token_data") or [])


def _ids(prompt: Any) -> list[int]:
    return words.ids_of(prompt) if isinstance(prompt, str) else list(prompt or [])


def _usage(request: Request, last: Step) -> dict[str, int]:
    prompt = len(request.taken_ids)
    return {"prompt_tokens": prompt, "total_tokens": prompt + last.count, "completion_tokens": last.count}


def _sglang_finish(step: Step) -> dict[str, Any] | None:
    if step.finish is None:
        return None
    details: dict[str, dict[str, Any]] = {
        "length": {"length": step.count},
        "stop": {"matched": 200002},
        "abort": {"message": "aborted by the stub", "status_code": 500},
    }
    return {"type": step.finish} | details.get(step.finish, {})
