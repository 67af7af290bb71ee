"""The command line of a ladder, and its lines for many slow replicas."""

import msgspec
import pytest

from harness.peak.cli import parse_options
from harness.peak.console import remarks
from tests.harness.peak.made import ladder, latency, step

FILE = ("--input-file", "set.parquet")


def test_the_list_of_steps():
    options = parse_options(["ladder", *FILE, "--concurrency", "8,16, 32", "--seconds", "30"])
    assert (options.concurrency, options.seconds, options.scenario) == ((8, 16, 32), 30, "server")
    assert parse_options(["ladder", *FILE]).concurrency == ()
    assert parse_options(["ladder", *FILE, "--seconds", "2m"]).seconds == 120


@pytest.mark.parametrize(
    "words",
    [("--concurrency", "4,x"), ("--concurrency", ""), ("--scenario", "offline"), ("--max-samples", "3")],
)
def test_refused(words, capsys):
    with pytest.raises(SystemExit) as end:
        parse_options(["ladder", *FILE, *words])
    assert end.value.code == 2
    stderr = capsys.readouterr().err
    assert words[0] in stderr and "<Scenario" not in stderr


def test_three_slow_replicas_are_named():
    made = step(4, 200)
    medians = [20] * 8 + [30, 40, 25, 50]
    replicas = tuple(
        msgspec.structs.replace(made.replicas[0], url=f"http://{number}", tpot=latency(median))
        for number, median in enumerate(medians)
    )
    shown = msgspec.structs.replace(made, replicas=replicas)
    said = [text.split()[0] for text in remarks(shown, ladder(shown)) if "times" in text]
    assert said == ["http://11", "http://9", "http://8", "and"]
