"""Text for people: what is escaped, and how times are written."""

import pytest

from harness.text import aligned, by_kind, counted, duration, first_few, how_it_ended, one_line, printable

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\nOK \u202etxt\x9b31m\ud800"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, with é", "plain text, with é"),
        ("a\tb\n", "a\\tb\\n"),
        (HOSTILE, "\\x1b]0;owned\\x07\\x1b[2J\\r\\nOK \\u202etxt\\x9b31m\\ud800"),
        ("x" * 400, "x" * 297 + "..."),
        ("\x1b" * 200, "\\x1b" * 74 + "\\..."),
    ],
)
def test_printable(text, shown):
    assert printable(text) == shown


def test_one_line_keeps_letters_beside_what_is_escaped():
    assert one_line(ValueError("in é\x1b:\n\t  line 2")) == "in é\\x1b: line 2"
    assert one_line("x \n" * 20, 10) == "x x x x..."


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0s"), (59.9, "59s"), (60, "1m00s"), (3600, "1h00m"), (90061, "25h01m")]
)
def test_duration(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [
        (1, ["server"], "1 server"),
        (0, ["query"], "0 queries"),
        (1, ["query", "was"], "1 query was"),
        (1200, ["query", "was"], "1,200 queries were"),
        (2, ["entry", "is"], "2 entries are"),
    ],
)
def test_numbers_of_things(count, words, text):
    assert counted(count, *words) == text


def test_the_most_frequent_kinds_come_first():
    counts = {"connect": 1, "timeout": 1200, "send": 2}
    assert by_kind(counts) == "timeout 1,200, send 2, connect 1"
    assert by_kind(counts, 1) == "timeout 1,200"
    assert by_kind({}) == ""


@pytest.mark.parametrize(
    ("most", "between", "text"),
    [(3, ", ", "1, 2, 3"), (2, ", ", "1, 2 and 1 more"), (1, "; ", "1; and 2 more")],
)
def test_the_first_few(most, between, text):
    assert first_few([1, 2, 3], most, between) == text


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "ended with exit code 0"),
        (128, "ended with exit code 128"),
        (200, "ended with exit code 200"),
        (-15, "was ended by SIGTERM"),
        (143, "was ended by SIGTERM (exit code 143)"),
        (-9, "was killed by SIGKILL, as the kernel does where memory is short (see dmesg)"),
        (137, "was killed by SIGKILL, as the kernel does where memory is short (see dmesg) (exit code 137)"),
        (-24, "was ended by SIGXCPU, the limit on the CPU time of a process (ulimit -t)"),
        (-40, "was ended by signal 40"),
        (None, "hung up"),
    ],
)
def test_how_a_program_ended(code, text):
    """A shell adds 128 to a signal, and so does docker run."""
    assert how_it_ended(code) == text


def test_a_table_with_names_of_two_columns_for_each_character():
    """As a terminal shows them: a CJK character takes two columns, a combining accent none."""
    rows = [("run", "samples/s", "of"), ("東京の実行", "1.00", "x"), ("re\u0301seau", "10.00", "京")]
    assert list(aligned(rows, "<><")) == [
        "run         samples/s  of",
        "東京の実行       1.00  x",
        "re\u0301seau          10.00  京",
    ]
    wide = [("\uff32\uff45", "a"), ("x", "b")]
    assert list(aligned(wide, least=(6, 0))) == ["\uff32\uff45    a", "x       b"]
