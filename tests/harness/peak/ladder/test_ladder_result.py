"""Where a ladder ends, its best step and its knee; the steps of the default; its command line; refusals."""

import shlex

import msgspec
import pytest
from msgspec.structs import replace

from harness.errors import ConfigError
from harness.peak.ladder.ladder_console import remarks, repeat_lines
from harness.peak.ladder.ladder_plan import default_steps, resolve_ladder_plan
from harness.peak.ladder.ladder_result import stragglers, why_stop
from harness.peak.peak_options import LadderOptions, parse_options
from tests.harness.peak.ladder.made import LIMITS, curve, ladder, latency, step, uneven
from tests.records import ENDED
from tests.runs import PERFORMANCE, ROOT

NEXT = [
    ([step(4, 200)], ""),
    ([step(4, 200, steady=False)], ""),
    ([step(4, 200), step(8, 380)], ""),
    ([step(4, 200), step(8, 204)], ""),
    ([step(4, 200), step(8, 203)], "+1.5%"),
    ([step(4, 0), step(8, 0)], ""),  # no answer had an end in either
    ([step(2, 100), step(4, 200), step(8, 150)], "-25.0%"),
    ([step(64, 1000), step(72, 1004)], ""),  # 2 % are asked of a doubling, 0.34 % of this
    ([step(64, 1000), step(72, 1003)], "+0.3%"),
    ([step(4, 200), step(32, 203)], "+1.5%"),
    ([step(4, 200, ttft=2700)], "TTFT"),
    ([step(4, 200, tpot=70)], "TPOT"),
    ([step(4, 200, tpot=66)], ""),
    ([step(4, 200, client_bound=True)], "client"),
    ([step(4, 200, failures={"timeout": 2})], "timeout 2"),
]


FAILED = step(4, 200, failures={"timeout": 2})


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (ladder(), []),
        (ladder(complete=False, interrupted_by="SIGINT"), ["Repeat it with: "]),
        (ladder(FAILED, complete=False, interrupted_by="SIGINT"), ["Mend the cause, then repeat it with: "]),
        (ladder(complete=False, errors=("the server died",)), ["Mend the cause, then repeat it with: "]),
        (ladder(FAILED), ["Mend the cause, then repeat it with: "]),
    ],
)
def test_one_that_has_no_result_ends_with_its_own_command(end, said):
    """A run and a search did, and a ladder left its user to look for the command."""
    words = [str(ROOT / "find_peak.py"), "ladder", "--input-file", PERFORMANCE, "--concurrency", "2,4"]
    end = replace(end, provenance=replace(end.provenance, command=tuple(map(str, words))))
    lines = list(repeat_lines(end))
    assert [line.partition(": ")[0] + ": " for line in lines] == said
    for line in lines:
        again = shlex.split(line.partition(": ")[2])
        assert parse_options(again[again.index("ladder") :]) == parse_options(list(map(str, words[1:])))


@pytest.mark.parametrize(("steps", "said"), NEXT)
def test_where_it_ends(steps, said):
    found = why_stop(steps, LIMITS)
    assert bool(found) == bool(said)
    assert said in found


def test_after_failures_it_goes_on_if_asked_to_and_no_limits_break_none():
    assert not why_stop([step(4, 200, failures={"timeout": 2})], LIMITS, goes_on=True)
    assert not why_stop([step(4, 200, ttft=9000, tpot=900)], {})


@pytest.mark.parametrize(
    ("medians", "found"),
    [
        ((20, 20, 20), []),
        ((20, 20, 26), [1.3]),
        ((20, 20, 26, None), [1.3]),  # no answer of one in this step
        ((20, 21), []),
        ((30,), []),
        ((20, 10), [2.0]),
        ((12, 10), [1.2]),
    ],
)
def test_stragglers_are_named(medians, found):
    assert [ratio for _, ratio in stragglers(uneven(*medians))] == pytest.approx(found)


@pytest.mark.parametrize(
    ("steps", "best", "knee"),
    [
        (curve(), 64, 32),  # the knee has the largest product of both rates; TTFT breaks at 128
        (curve()[:3], 16, None),  # nothing beyond the last: no knee was seen
        ((step(4, 200, failures={"timeout": 1}), step(8, 150)), 8, None),
        ((step(4, 200), step(8, 900, client_bound=True)), 4, None),
        ((step(4, 200, ttft=4000),), None, None),
    ],
)
def test_best_and_knee(steps, best, knee):
    found = ladder(*steps)
    assert (found.best and found.best.concurrency, found.knee and found.knee.concurrency) == (best, knee)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, 0),
        ({"complete": False}, 4),
        ({"steps": (step(4, 200, failures={"timeout": 1}),)}, 4),
        ({"complete": False, "interrupted_by": "SIGINT"}, 130),
        ({"complete": False, "interrupted_by": "SIGTERM"}, 143),
    ],
)
def test_exit_codes(fields, code):
    assert ladder(**fields).exit_code == code


@pytest.mark.parametrize(
    ("running", "holds", "steps"),
    [
        ([16], 10**6, (1, 2, 4, 8, 16)),
        ([512, 512], 10**6, (32, 64, 128, 256, 512, 1024)),
        ([512, 512], 700, (22, 44, 88, 175, 350, 700)),
        ([2], 10**6, (1, 2)),
        ([1] * 8, 10**6, (8,)),
        ([None], 10**6, (32, 64, 128, 256, 512, 1024)),
    ],
)
def test_default_steps(running, holds, steps):
    one = ENDED.servers[0]
    servers = [msgspec.structs.replace(one, max_running_requests=most, dp_size=None) for most in running]
    assert default_steps(servers, holds) == steps


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"concurrency": (8, 4)}, "4 behind 8"),
        ({"concurrency": (8, 8)}, "8 behind 8"),
        ({"concurrency": (0,)}, "has 0"),
        ({"concurrency": (4, 1 << 21)}, "1 to"),
        ({"seconds": 0.5}, "--seconds"),
        ({"seconds": float("nan")}, "--seconds"),
    ],
)
def test_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        resolve_ladder_plan(LadderOptions(input_file=PERFORMANCE, **wrong))


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
def test_flags_that_are_refused(words, capsys):
    with pytest.raises(SystemExit) as end:
        parse_options(["ladder", *FILE, *words])
    assert end.value.code == 2
    stderr = capsys.readouterr().err
    assert words[0] in stderr and "<Scenario" not in stderr


def test_three_slow_replicas_are_named():
    shown = uneven(*[20] * 8, 30, 40, 25, 50)
    said = [text.split()[0] for text in remarks(shown, ladder(shown)) if "times" in text]
    assert said == ["http://11", "http://9", "http://8", "and"]


def test_failed_requests_are_the_first_remark():
    shown = step(8, 300, failures={"timeout": 2, "refused": 1}, ttft=9000, steady=False)
    first, second, last = remarks(shown, ladder(shown))
    assert (first, last) == ("3 FAILED", "NOT STEADY") and "TTFT" in second


def test_tokens_of_a_user_are_by_the_90th_percentile_of_tpot():
    assert step(8, 300, tpot=latency(20, 30)).user_tokens_per_s == 40  # 25 ms at p90


def test_a_ladder_takes_the_downloaded_dataset_and_the_limits_of_the_rules(tmp_path, nothing_downloaded):
    """Of gpt-oss-120b in Server: 3 s and 80 ms."""
    file = tmp_path / "data/perf/perf_eval_ref.parquet"  # as datasets/manifest.tsv has it
    file.parent.mkdir(parents=True)
    file.touch()
    plan = resolve_ladder_plan(LadderOptions(scenario="server"))
    assert plan.client.input_file == file
    assert plan.limits_ns == {"TTFT": 3_000 * 10**6, "TPOT": 80 * 10**6}
