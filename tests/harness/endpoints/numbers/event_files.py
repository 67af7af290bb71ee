"""What tests of events.jsonl build: lines of a run whose requests are known."""

import json
from pathlib import Path

from tests.runs import ROOT, SAMPLES

OFFICIAL_RUNS = ROOT / "tests" / "data" / "endpoints"
OFFICIAL_RUN = OFFICIAL_RUNS / "official_run"
TOKENIZER = SAMPLES / "cnn_sample_tokenizer.json"
MS = 10**6


def event(kind: str, ms: float, uuid: str = "", data=None, **more) -> str:
    ns = int(ms * MS)
    line = {"event_type": kind, "timestamp_ns": ns, "sample_uuid": uuid, "conversation_id": "", "turn": None}
    return json.dumps(line | {"data": data} | more, separators=(",", ":"), ensure_ascii=False)


def session(kind: str, ms: float) -> str:
    return event(f"session.{kind}", ms)


def issued(uuid: str, ms: float, ids=()) -> str:
    return event("sample.issued", ms, uuid, ["PromptData", None, list(ids)])


def first(uuid: str, ms: float) -> str:
    return event("sample.recv_first", ms, uuid)


def complete(uuid: str, ms: float, *parts: str, finish_reason="stop") -> str:
    answer = ["TextModelOutput", list(parts), None, None]
    return event("sample.complete", ms, uuid, answer, finish_reason=finish_reason, worker_id=0)


def failed(uuid: str, ms: float) -> list[str]:
    """The official client ends a failed request, too."""
    end = event("sample.complete", ms, uuid, None, worker_id=0)
    return [event("error.generic", ms, uuid, ["ErrorData", "ClientError", "500"]), end]


def write(folder: Path, *lines: str | list[str], end: str = "\n") -> Path:
    flat = [each for line in lines for each in ([line] if isinstance(line, str) else line)]
    (folder / "events.jsonl").write_text("\n".join(flat) + end)
    return folder


START, STOP = session("start_performance_tracking", 1), session("stop_performance_tracking", 90)
BEGIN = [session("started", 0), START]
END = [STOP, session("ended", 99)]
