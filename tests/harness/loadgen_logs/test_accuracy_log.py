"""The log reader: every shape that LoadGen's accuracy logs have been seen in, cut at every byte."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import GradingError
from harness.loadgen_logs import accuracy_log
from harness.loadgen_logs.accuracy_log import AccuracyLog, Checklist
from tests.harness.grading.logs import array, entry
from tests.harness.grading.shared import SHARED_DATA
from tests.runs import ROOT

IDS = [200005, 35644, 200008, 11, 12, 13, 14, 15, 16, 17, 200002]
SHARED = SHARED_DATA / "mlperf_v6.0" / "closed"


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch):
    """Entries lie in several chunks of the file, as those of a large log."""
    monkeypatch.setattr(accuracy_log, "_CHUNK", 64)


def read(path: Path) -> list[tuple[int, list[int]]]:
    return [(found.qsl_idx, found.token_ids.tolist()) for found in AccuracyLog(path)]


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("first", ["data", "token_data", "both"])
@pytest.mark.parametrize("count", [True, False])
@pytest.mark.parametrize("shape", ["array", "lines", "one line", "pretty"])
@pytest.mark.usefixtures("small_chunks")
def test_every_shape_gives_the_same_tokens(shape: str, count: bool, first: str, width: int, tmp_path: Path):
    outputs = [IDS, IDS[:3] + IDS[5:]]
    if count:  # else a doubled first token cannot be told from a repeated one
        outputs.append([*IDS[:1], *IDS])
    entries = [entry(i, ids, first=first, width=width, count=count) for i, ids in enumerate(outputs)]
    text = {
        "array": array(entries),
        "lines": "\n".join(entries) + "\n",
        "one line": "[" + ",".join(entries) + "]",
        "pretty": array(entries).replace(", ", ",\n    ").replace("{ ", "{\n    "),
    }[shape]
    log = tmp_path / "log.json"
    log.write_text(text)
    reader = AccuracyLog(log)
    found = list(reader)
    assert [(one.qsl_idx, one.token_ids.tolist()) for one in found] == list(enumerate(outputs))
    assert {one.is_first_apart for one in found} == {first == "token_data"}
    assert reader.is_odd == (width == 8 or shape == "lines")
    assert reader.cut is None
    assert reader.read_at(found[1].offset, found[1].size).tolist() == outputs[1]


def test_several_tokens_in_the_first_event(tmp_path: Path):
    """A real log of v6.0 has two: [200005, 2]."""
    log = tmp_path / "log.json"
    data, first = entry(0, IDS, first="data", count=False), "450D030002000000"
    log.write_text("[" + data.replace(" }", f', "token_data" : "{first}" }}') + "]")
    assert read(log) == [(0, [200005, 2, *IDS])]


def test_an_output_of_exclamation_marks_does_not_pass_for_int64(tmp_path: Path):
    log = tmp_path / "log.json"
    outputs = [[5, 0], [5, 0, 7], IDS]
    log.write_text(array(entry(index, ids) for index, ids in enumerate(outputs)))
    assert read(log) == list(enumerate(outputs))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("zeros", [[0] * 500, [200005] + [0] * 499])
def test_a_loop_of_id_0_is_an_output_of_its_log(zeros: list[int], place: int, tmp_path: Path):
    """The official evaluators read int32 in any case."""
    outputs = [IDS, IDS]
    outputs[place] = zeros
    log = tmp_path / "log.json"
    log.write_text(array(entry(index, ids) for index, ids in enumerate(outputs)))
    assert read(log) == list(enumerate(outputs))


@pytest.mark.parametrize("data", ["7", "77", "null", '"7"', '"0G000000"', '"070000"'])
def test_data_that_is_no_hex_of_ids_is_an_error(data: str, tmp_path: Path):
    log = tmp_path / "log.json"
    log.write_text(array([entry(0, IDS), f'{{ "qsl_idx" : 1, "data" : {data} }}']))
    with pytest.raises(GradingError, match=r"\(qsl_idx 1\): .*hex"):
        read(log)


@pytest.mark.parametrize("field", ["qsl_idx", "token_count"])
def test_a_number_beyond_64_bits_is_an_error(field: str, tmp_path: Path):
    log = tmp_path / "log.json"
    given = {"qsl_idx": 1, "data": "", field: 10**20}
    log.write_text(array([entry(0, IDS), json.dumps(given)]))
    with pytest.raises(GradingError, match=rf"byte \d+: .*{field}"):
        read(log)


@pytest.mark.parametrize("widths", [(8, 4), (4, 8)])
def test_mixed_widths_are_an_error(widths: tuple[int, int], tmp_path: Path):
    log = tmp_path / "log.json"
    log.write_text(array(entry(index, IDS, width=width) for index, width in enumerate(widths)))
    with pytest.raises(GradingError, match=r"qsl_idx 1\): int(32|64) .*int(64|32) "):
        read(log)


def test_an_int32_output_of_one_id_is_none_of_a_log_of_int64(tmp_path: Path):
    (log := tmp_path / "log.json").write_text(array((entry(0, IDS, width=8), entry(1, IDS[:1], width=4))))
    with pytest.raises(GradingError, match=r"qsl_idx 1\): int32 .*int64 "):
        read(log)


def test_a_log_cut_at_any_byte_gives_what_is_whole(tmp_path: Path):
    whole = array(entry(index, IDS) for index in range(3))
    ends = [position for position in range(len(whole)) if whole[position] == "}"]
    log = tmp_path / "log.json"
    for length in range(ends[0] + 1, len(whole)):
        log.write_text(whole[:length])
        reader = AccuracyLog(log)
        assert len(list(reader)) == sum(end < length for end in ends)
        assert (reader.cut is None) == (length >= len(whole) - 1)  # up to the newline after ]


@pytest.mark.parametrize(
    "form",
    [
        "[{},{},]",
        "[{},,{}]",
        "[{}{}]",
        "[{},{}][]",
        "[[{},{}]]",
        "{},{}",
        "[{},{}}]",
        "{}]{}",
        "]{}{}",
        "x[{},{}]",
        "[{},{}{",
    ],
)
def test_entries_that_the_official_evaluators_cannot_load_are_an_error(form: str, tmp_path: Path):
    log = tmp_path / "log.json"
    log.write_text(form.replace("{}", entry(0, IDS)))
    with pytest.raises((ValueError, TypeError)):  # as they load an array
        [row["data"] for row in json.loads(log.read_text())]
    with pytest.raises(GradingError, match=r"byte \d+: '.*' between entries"):
        read(log)


def test_the_checklist_names_what_is_missing():
    checklist = Checklist(4)
    checklist.tick(2)
    checklist.tick(0)
    assert checklist.coverage().missing == (1, 3)
    for strange in (0, 4, -1):
        with pytest.raises(GradingError):
            checklist.tick(strange)


@pytest.mark.skipif(not SHARED.exists(), reason="the published logs are not on this machine")
def test_published_logs_are_refused_with_the_reason():
    paths = sorted(SHARED.glob("**/mlperf_log_accuracy.json"))
    assert paths
    for path in paths:
        with pytest.raises(GradingError, match=r"truncated for submission|no entries"):
            list(AccuracyLog(path))


@pytest.mark.engine
def test_memory_does_not_grow_with_the_log(tmp_path: Path):
    log = tmp_path / "log.json"
    log.write_text(array([entry(0, IDS * 3000)] * 200))
    assert log.stat().st_size > 50_000_000
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from harness.loadgen_logs.accuracy_log import AccuracyLog\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert sum(len(entry.token_ids) for entry in AccuracyLog(Path(sys.argv[1]))) == 6_600_000\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    grown = subprocess.check_output([sys.executable, "-c", code, log], cwd=ROOT)
    assert int(grown) < 20_000  # KiB
