"""docs/reference/conformance.md: what the client makes of the recorded answers of real servers.

``python -m tests.conformance.page`` writes its tables again. Each cell is what a replay shows.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.config.protocol import Protocol
from harness.record.outcome import Completion, Failure, TextCompletion
from tests.conformance.replay import Replayed, asked_tokens, reading_of, replay, said_ids, sent_tokens
from tests.conformance.rows import SERVERS, Row, Server, recorded, recordings, refusals
from tests.faults.matrix import WAYS
from tests.faults.tables import between, table
from tests.recorded_wires import Exchange

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/conformance.md"
BEGIN, END = "<!-- conformance: written by tests/conformance/page.py -->", "<!-- end of conformance -->"
_HEAD = ("asked by", "answers", "streamed", "complete", "end token", "prompt tokens", "id comes back")
_ERROR_CHARACTERS = 72
_RETURN = 200002  # gpt-oss's end token


def written(text: str) -> str:
    """``text`` with the tables as they are now."""
    return between(text, BEGIN, END, tables())


def tables() -> str:
    """The servers, their errors, and the ways that the stub's faults are tested through."""
    servers = [line for server in SERVERS for line in (*_server(server), "")]
    return "\n".join([*servers, "## Errors", "", *_errors(), "", "## Faults", "", *_faults()])


def _server(server: Server) -> list[str]:
    title = [f"## {server.title}", "", *([f"{server.about}.", ""] if server.about else [])]
    left = f"When the client leaves: {server.when_left}."
    return [*title, *table(_HEAD, [_cells(server, row) for row in server.rows]), "", left]


def _cells(server: Server, row: Row) -> list[str]:
    streamed, complete = recordings(server, row)
    read = [
        (one, replay(one, row.protocol))
        for one in (streamed, complete)
        if one is not None and one.status == 200
    ]
    return [
        f"`{row.protocol.api}`",
        row.protocol.answers,
        shown(streamed, row),
        shown(complete, row),
        _end_token(read),
        _prompt(read),
        _id_back(server, row, read),
    ]


def shown(one: Exchange | None, row: Row) -> str:
    """What the client makes of a recorded answer, beside the ids that it is of."""
    if one is None:
        return "-"
    if one.status != 200:
        return f"refused: {one.status}"
    found = replay(one, row.protocol)
    if found.kind:
        return f"`{found.kind}`"
    if row.protocol.api == "chat-ids" and _counts_another_prompt(one, found):
        return "prompt ignored"
    truth = recorded(row.truth) if row.truth else one
    assert truth is not None, row.truth
    ids = said_ids(truth)[: asked_tokens(one)]
    if not ids:
        return "text"  # of ids that nothing shows
    if found.ids == ids:
        return "exact"
    if [*found.ids, _RETURN] == ids:
        return "all but the end token"
    return f"{len(found.ids)} ids for {len(ids)}"


def _counts_another_prompt(one: Exchange, found: Replayed) -> bool:
    return getattr(found.outcome, "prompt_tokens", None) != sent_tokens(one)


def _end_token(read: Sequence[tuple[Exchange, Replayed]]) -> str:
    """Whether the answers that ended with one have it."""
    ended = [found for _, found in read if getattr(found.outcome, "finish_reason", "") == "stop"]
    return "-" if not ended else "yes" if all(found.ids[-1] == _RETURN for found in ended) else "no"


def _prompt(read: Sequence[tuple[Exchange, Replayed]]) -> str:
    """The server's count; beside it what was sent, where that is another."""
    complete = [(one, found) for one, found in read if not isinstance(found.outcome, Failure)]
    cells = dict.fromkeys(_prompt_of(one, found) for one, found in complete)
    return ", ".join(cells) or "-"


def _prompt_of(one: Exchange, found: Replayed) -> str:
    assert isinstance(found.outcome, Completion | TextCompletion)
    counted, sent = found.outcome.prompt_tokens, sent_tokens(one)
    return str(counted) if counted == sent else f"{counted}, sent {sent}"


def _id_back(server: Server, row: Row, read: Sequence[tuple[Exchange, Replayed]]) -> str:
    other = recorded(f"{server.folder}/{row.id_name}") if row.id_name else None
    if other is not None:
        read = [(other, replay(other, replace(row.protocol, answers="text")))]
    said = {found.id_back for _, found in read} - {None}
    return "-" if not said else "yes" if said == {True} else "no"


def _errors() -> list[str]:
    """Every recorded error, and what a query ends in that meets it."""
    dialects = {server.folder: server.dialect for server in reversed(SERVERS)}
    cases: dict[tuple[str, ...], list[str]] = {}
    for folder, dialect in dialects.items():
        for one in refusals(folder):
            found = replay(one, reading_of(one, dialect))
            failed = isinstance(found.outcome, Failure)
            said = found.outcome.detail if isinstance(found.outcome, Failure) else ""
            kind = f"`{found.kind}`" if failed else "complete"
            case = folder, str(one.status), kind, _cell(said)
            cases.setdefault(case, []).append(one.name.partition("/")[2])
    lines = [[folder, ", ".join(names), *rest] for (folder, *rest), names in cases.items()]
    return table(("server", "recordings", "status", "a query ends", "in these words"), lines)


def _cell(text: str) -> str:
    """The beginning of a text, as a table may have it."""
    return (text[:_ERROR_CHARACTERS] or "-").replace("|", "\\|").replace("<", "&lt;")


def _faults() -> list[str]:
    """The ways of the fault matrix."""
    protocols = dict.fromkeys(way.protocol for way in WAYS)
    lines = [
        [
            one.dialect,
            f"`{one.api}`",
            one.answers,
            *(str(_faults_of(one, streams)) for streams in (True, False)),
        ]
        for one in protocols
    ]
    return table(("names of options", "asked by", "answers", "faults, streamed", "complete"), lines)


def _faults_of(protocol: Protocol, streams: bool) -> int:
    (way,) = (way for way in WAYS if way.protocol == protocol and way.streams is streams)
    return len(way.faults)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
