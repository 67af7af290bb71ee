"""What a repeated command makes of an earlier run, from what its folder holds."""

import re
from pathlib import Path

import pytest
from msgspec import structs

from harness.config.benchmark import load_benchmark
from harness.config.plans import ComplianceSettings
from harness.errors import EXIT_USAGE, ConfigError
from harness.files import ACCURACY_LOG, sha256_of
from harness.record.answer_log import encode_answer
from harness.record.output_dir import move_aside_existing
from harness.record.provenance import GitState
from harness.record.repeated import resuming_command
from harness.record.resume import (
    archive_attempt,
    check_answers,
    check_model,
    differences,
    earlier_run,
    readable_run,
    require_unchanged,
    saved_answers,
    unfinished,
    version_changes,
)
from harness.record.run_record import EncodedAnswers, RunVerdict
from harness.record.settled import Router
from tests.records import ENDED, with_plan, write_logs

PARAMETERS = structs.replace(ENDED.plan.client.parameters, extra={"stop": [1, 2]})
RECORD = with_plan(structs.replace(ENDED, verdict=None), mode="accuracy", samples=96, parameters=PARAMETERS)
SERVER = RECORD.servers[0]
GPT_OSS = load_benchmark("gpt-oss-120b")


def found(log_dir, record=RECORD, is_done=lambda earlier: False, **flags):
    """What the command of ``record`` finds in the folder."""
    plan = with_plan(record, log_dir=log_dir, **flags).plan
    return earlier_run(plan, record.settled.samples, record.settled.dataset_sha256, is_done)


def refusal(log_dir, record=RECORD, **flags):
    with pytest.raises(ConfigError) as caught:
        found(log_dir, record, **flags)
    assert caught.value.exit_code == EXIT_USAGE
    assert "\n" not in str(caught.value)
    return str(caught.value)


def answer(folder, *samples):
    """Write answers to these samples into a journal."""
    (folder / "journal").mkdir(parents=True, exist_ok=True)
    records = (encode_answer(sample, 1, b"\7\0\0\0") for sample in samples)
    (folder / "journal" / "answers-0.bin").write_bytes(b"".join(records))


def ended(result, **fields):
    return structs.replace(RECORD, verdict=RunVerdict(result), **fields)


def complete(log_dir, record=RECORD):
    structs.replace(record, verdict=RunVerdict("VALID")).write(log_dir / "run.json")
    write_logs(log_dir)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize(
    "record",
    [RECORD, ended("INTERRUPTED"), ended("INVALID")],
    ids=["no verdict", "INTERRUPTED", "INVALID"],
)
def test_an_incomplete_run_is_continued(tmp_path, record, resume):
    record.write(tmp_path / "run.json")
    answer(tmp_path, 3, 5)
    answer(tmp_path / "attempt.1", 0, 5)
    earlier = found(tmp_path, resume=resume)
    assert earlier.course == "continue"
    assert f"continues the run of {RECORD.started:%Y-%m-%d %H:%M:%S} UTC: 3 of 96" in earlier.first_line
    assert "would continue" in found(tmp_path, dry_run=True).first_line


@pytest.mark.parametrize("content", [None, "{"], ids=["none", "damaged"])
def test_nothing_is_known_without_a_readable_record(content, tmp_path):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    assert readable_run(tmp_path) is None


def test_a_run_whose_record_was_being_moved_is_continued(tmp_path):
    """Killed between the move into attempt.1 and the first record of the next attempt."""
    for name in ("attempt.1", "attempt.2"):
        (tmp_path / name).mkdir()
    (tmp_path / ".reserve").write_bytes(b"0")
    complete(tmp_path / "attempt.1")
    assert found(tmp_path).course == "continue"


@pytest.mark.parametrize("name", ["accuracy.json", "detail.txt", "summary.txt"])
@pytest.mark.parametrize("resume", [False, True])
def test_a_valid_run_is_complete(tmp_path, resume, name):
    """Unless a log was cut since: the answers are kept, and it is written again from them."""
    complete(tmp_path)
    earlier = found(tmp_path, resume=resume)
    assert (earlier.course, earlier.record.verdict.result) == ("complete", "VALID")
    ran = f"{RECORD.started:%Y-%m-%d %H:%M:%S} UTC"
    assert earlier.first_line == (
        f"complete: the run of {ran}, VALID, in {tmp_path}; nothing is sent (--restart begins anew)"
    )
    assert earlier.record.plan.client.log_dir == tmp_path
    log = tmp_path / f"mlperf_log_{name}"
    log.write_bytes(log.read_bytes()[:-40])
    assert found(tmp_path, resume=resume).course == "continue"
    log.unlink()
    assert found(tmp_path, resume=resume).course == "continue"


def test_an_invalid_run_with_all_answers_is_not_complete(tmp_path):
    """That of a compliance test would be: it need not pass the benchmark's limits."""
    complete(tmp_path)
    structs.replace(RECORD, verdict=RunVerdict("INVALID", ("slow",), complete=True)).write(
        tmp_path / "run.json"
    )
    assert found(tmp_path).course == "continue"


def test_the_score_of_a_run_that_is_not_valid_does_not_count(tmp_path):
    answer(tmp_path, 3, 5)
    counts = "so that no score of it counts; 2 of 96 samples are answered. Continue it"
    how = f"{counts} with: {resuming_command(RECORD.provenance.command)}"
    assert unfinished(tmp_path, RECORD) == f"the run has not ended or was killed, {how}"
    assert unfinished(tmp_path, ended("INVALID")) == f"the run is INVALID, {how}"
    unnamed = structs.replace(RECORD, provenance=structs.replace(RECORD.provenance, command=()))
    assert (
        unfinished(tmp_path, unnamed) == f"the run has not ended or was killed, {counts} by its own command"
    )
    assert unfinished(tmp_path, with_plan(ended("INVALID"), mode="performance")) == (
        "the run is INVALID, so that no score of it counts; score the log of the accuracy run"
    )
    assert unfinished(tmp_path, ended("VALID")) == ""


def test_a_valid_run_whose_log_is_another_one_writes_it_again_from_its_answers(tmp_path):
    """Such as that of another run, copied there."""
    complete(tmp_path)
    own = sha256_of(tmp_path / ACCURACY_LOG)
    for left, course in ((own, "complete"), ("0" * 64, "continue")):
        complete(tmp_path, structs.replace(RECORD, accuracy_log_sha256=left))
        assert found(tmp_path).course == course


def test_the_log_of_a_run_under_other_rules_is_written_again_from_its_answers(tmp_path):
    complete(tmp_path, with_plan(RECORD, mlperf_conf=tmp_path / "mlperf.conf"))
    assert found(tmp_path).course == "continue"


@pytest.mark.parametrize("mode", ["accuracy", "performance"])
def test_a_run_that_begins_anew_says_where_the_earlier_one_goes(tmp_path, mode):
    folder = tmp_path / mode
    folder.mkdir()
    record = with_plan(ended("INTERRUPTED"), mode=mode)
    record.write(folder / "run.json")
    answer(folder, *range(36))
    earlier = found(folder, record, restart=True)
    assert earlier.course == "anew"
    (aside,) = re.findall(rf"moved to ({re.escape(str(folder))}[.][-0-9]+) ", earlier.first_line)
    assert ("36 of 96" in earlier.first_line) == (mode == "accuracy")
    assert "INTERRUPTED" in earlier.first_line
    assert "as asked for" in earlier.first_line
    back = f"; to go back to it, move it back and run {resuming_command(record.provenance.command)}"
    assert earlier.first_line.endswith(f" before the first query{back if mode == 'accuracy' else ''}")
    if mode == "performance":
        again = found(folder, record)
        assert again.course == "anew" and "as performance runs do" in again.first_line
        assert f"{record.statistics.completed} queries are answered" in again.first_line
    assert str(move_aside_existing(folder)) == aside


def test_a_compliance_run_is_done_once_it_has_passed(tmp_path):
    audit = ComplianceSettings(
        test="TEST07", dataset=GPT_OSS.dataset(accuracy=False), settings={}, text="", official=True
    )
    log_dir = tmp_path / "TEST07" / "run"
    record = with_plan(RECORD, mode="performance", audit=audit)
    assert found(log_dir, record) is None
    log_dir.mkdir(parents=True)
    complete(log_dir, record)
    assert found(log_dir, record, lambda earlier: True).course == "complete"
    assert found(log_dir, record, lambda earlier: False).course == "anew"
    for is_complete in (False, True):  # a slow one, whose logs are all that the test needs
        verdict = RunVerdict("INVALID", ("slow",), complete=is_complete)
        structs.replace(record, verdict=verdict).write(log_dir / "run.json")
        course = found(log_dir, record, lambda earlier: True).course
        assert course == ("complete" if is_complete else "anew")
    other = with_plan(record, audit=structs.replace(audit, settings={"mode": 3}))
    assert found(log_dir, other, lambda earlier: True).course == "anew"
    with_plan(RECORD, mode="performance", audit=audit).write(log_dir / "run.json")
    assert found(log_dir, record, lambda earlier: True).course == "anew"


def test_a_folder_without_a_run_is_new(tmp_path):
    assert found(tmp_path / "missing") is None
    (tmp_path / ".reserve").write_bytes(b"0")
    assert found(tmp_path) is None
    assert move_aside_existing(tmp_path) is None


@pytest.mark.parametrize("changed", [{"model": "another"}, {"vocabulary_size": 7}])
def test_answers_of_another_model_are_refused(tmp_path, changed):
    with pytest.raises(ConfigError) as caught:
        check_model(tmp_path, RECORD, structs.replace(SERVER, **changed))
    assert all(
        str(value) in str(caught.value) for value in (*changed.values(), "--restart (and no --resume)")
    )
    assert f"the answers in {tmp_path} are of another model than {SERVER.url} now " in str(caught.value)
    check_model(tmp_path, structs.replace(RECORD, servers=()), SERVER)  # nothing is known of its servers
    other = structs.replace(RECORD, servers=(structs.replace(SERVER, **changed), SERVER))
    check_model(tmp_path, other, SERVER)  # one of its servers had the model
    check_model(tmp_path, RECORD, structs.replace(SERVER, context_length=1 << 20, model_path="/elsewhere"))


PATH, BF16 = "model_path", {"dtype": "bfloat16"}
CACHED = f"/hub/models--openai--gpt-oss-120b/snapshots/{'b5c9' * 10}"
NGINX, LLAMA = {"router": Router("nginx")}, dict.fromkeys((PATH, "model"), "/a/Llama-3.1-8B-Instruct")
TP, DP_ATTENTION = {"tp_size": 8}, {"enable_dp_attention": True, "attn_dp_size": 8}


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ({"settings": BF16}, {"settings": BF16 | {"quantization": "awq"}}, "quantization default is now awq"),
        ({"settings": BF16}, {"settings": {"dtype": "auto"}}, "dtype bfloat16 is now auto"),
        ({"settings": BF16}, {"settings": {}}, ""),  # such as vLLM's, which reports none
        ({"settings": {}}, {"settings": BF16 | {"quantization": "awq"}}, ""),
        ({"settings": BF16}, {"settings": BF16 | {"attention_backend": "triton"}}, ""),
        ({"weights_gb": 61.0}, {"weights_gb": 31.0}, "weights 61 GB is now 31 GB"),
        ({"weights_gb": 31.0}, {"weights_gb": 61.0}, "weights 31 GB is now 61 GB"),
        ({"weights_gb": 61.0}, {"weights_gb": 61.4}, ""),
        ({PATH: "/a/gpt-oss-120b"}, {PATH: "/b/gpt-oss-120b-int4"}, "is now /b/gpt-oss-120b-int4"),
        ({PATH: "/a/gpt-oss-120b"}, {PATH: "/b/gpt-oss-120b"}, ""),
        ({PATH: "/a/one", "revision": "abc"}, {PATH: "/a/other", "revision": "abc"}, ""),
        ({PATH: CACHED, "revision": "b5c9" * 10}, {PATH: "openai/gpt-oss-120b"}, ""),
        ({PATH: CACHED, "model": CACHED}, {PATH: "/b/gpt-oss-120b", "model": "/b/gpt-oss-120b"}, ""),  # vLLM
        ({PATH: CACHED, "model": CACHED}, {PATH: "/b/gpt-oss-20b", "model": "/b/gpt-oss-20b"}, "is now /b"),
        # vLLM behind a router: its path is its only name.
        (NGINX | {PATH: "/a/gpt-oss-120b", "model": "/a/gpt-oss-120b"}, NGINX | LLAMA, "is now /a/Llama"),
        (NGINX | {PATH: "/a/gpt-oss-120b"}, NGINX | {PATH: "/b/int4"}, ""),
        (NGINX | LLAMA, NGINX | dict.fromkeys(LLAMA, "/b/Llama-3.1-8B-Instruct"), ""),
        # 36 layers' attention, 1.9 GB, on each of 8 GPUs.
        ({"weights_gb": 61.0, "settings": TP}, {"weights_gb": 74.4, "settings": TP | DP_ATTENTION}, ""),
    ],
)
def test_answers_of_other_weights_are_not_mixed(tmp_path, before, now, words):
    record = structs.replace(RECORD, servers=(structs.replace(SERVER, **before),))
    if not words:
        return check_model(tmp_path, record, structs.replace(SERVER, **now))
    with pytest.raises(ConfigError, match=words):
        check_model(tmp_path, record, structs.replace(SERVER, **now))
    return None


@pytest.mark.parametrize(("before", "now"), [("ids", "text"), ("text", "ids")])
def test_answers_as_ids_and_as_text_are_not_mixed(tmp_path, before, now):
    """run.json says of all of them what it says of the last attempt's."""
    encoded = {"ids": None, "text": EncodedAnswers(tokenizer="o200k_harmony", tokenizer_sha256="a")}
    servers = (structs.replace(SERVER, answers=before),)
    record = structs.replace(RECORD, servers=servers, encoded=encoded[before])
    check_answers(tmp_path, record, before, encoded[before])
    came = rf"in {tmp_path} came as {before}, those of the servers now are {now}; .*--restart"
    with pytest.raises(ConfigError, match=came):
        check_answers(tmp_path, record, now, encoded[now])


def test_answers_that_two_tokenizers_encoded_are_not_mixed(tmp_path):
    servers = (structs.replace(SERVER, answers="text"),)
    encoded = EncodedAnswers(tokenizer="/m/tokenizer.json", tokenizer_sha256="a")
    other = EncodedAnswers(tokenizer="/n/tokenizer.json", tokenizer_sha256="b")
    record = structs.replace(RECORD, servers=servers, encoded=encoded)
    check_answers(tmp_path, record, "text", encoded)
    words = r"with /m/tokenizer\.json, not with this /n/tokenizer\.json; .*--restart"
    with pytest.raises(ConfigError, match=words):
        check_answers(tmp_path, record, "text", other)


def test_a_run_that_another_has_ended_meanwhile_is_not_touched(tmp_path):
    RECORD.write(tmp_path / "run.json")
    earlier = found(tmp_path)
    require_unchanged(tmp_path, earlier)
    complete(tmp_path, structs.replace(RECORD, started=ENDED.ended))
    with pytest.raises(ConfigError, match="another run"):
        require_unchanged(tmp_path, earlier)
    with pytest.raises(ConfigError, match="another run"):
        require_unchanged(tmp_path, None)


def of_version(*versions):
    servers = tuple(structs.replace(RECORD.servers[0], version=version) for version in versions)
    return structs.replace(RECORD, servers=servers)


def of_commit(git):
    return structs.replace(RECORD, provenance=structs.replace(RECORD.provenance, git=git))


def test_another_version_of_the_server_is_named(tmp_path):
    """Whichever of the attempts had it; what cannot be read is not the newest record."""
    for number, version in ((1, "0.5.21"), (2, None), (3, "0.5.23")):
        (tmp_path / f"attempt.{number}").mkdir()
        of_version(version).write(tmp_path / f"attempt.{number}" / "run.json")
    (tmp_path / "attempt.4").mkdir()
    (tmp_path / "attempt.4" / "run.json").write_text("{")
    assert list(version_changes(tmp_path, of_version("0.5.23"))) == []  # without an answer
    for number in (1, 2, 3):
        answer(tmp_path / f"attempt.{number}", number)
    (warning,) = version_changes(tmp_path, of_version("0.5.23"))
    assert "0.5.21" in warning and "0.5.23" in warning
    (warning,) = version_changes(tmp_path, of_version(None))
    assert "0.5.21, 0.5.23, the servers now report no version" in warning
    assert list(version_changes(tmp_path, of_version("0.5.21", "0.5.23"))) == []
    (tmp_path / "attempt.1" / "run.json").unlink()
    assert list(version_changes(tmp_path, of_version("0.5.23"))) == []


def test_another_commit_of_the_harness_is_named(tmp_path):
    """Before a query is sent: the performance run beside it may be of the earlier one."""
    before, now = GitState("1" * 40, dirty=False), GitState("2" * 40, dirty=False)
    for folder, git in ((tmp_path / "attempt.1", before), (tmp_path, None)):
        folder.mkdir(exist_ok=True)
        of_commit(git).write(folder / "run.json")
    assert list(version_changes(tmp_path, of_commit(now))) == []  # without an answer
    answer(tmp_path / "attempt.1", 0)
    (warning,) = version_changes(tmp_path, of_commit(now))
    assert f"{before}" in warning and f"{now}" in warning and "git checkout" in warning
    assert list(version_changes(tmp_path, of_commit(before))) == []
    assert list(version_changes(tmp_path, of_commit(None))) == []  # outside of a checkout


def test_answers_without_a_record_are_neither_used_nor_moved(tmp_path):
    assert "holds no run to resume" in refusal(tmp_path, resume=True)
    (tmp_path / "run.json").write_text('{"plan": {')
    assert found(tmp_path).course == "anew"  # nothing was answered
    answer(tmp_path, 3, 5)
    for flags in ({}, {"resume": True}):
        said = refusal(tmp_path, **flags)
        assert str(tmp_path / "run.json") in said and "2 answers" in said and "--restart" in said
    (tmp_path / "run.json").unlink()
    assert "2 answers" in refusal(tmp_path)
    assert found(tmp_path, restart=True).course == "anew"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"samples": 95}, ["samples 96", "95"]),
        ({"api": "chat"}, ["prompts ids", "text"]),
        ({"parameters": structs.replace(PARAMETERS, temperature=0.5)}, ["parameters.temperature 1.0", "0.5"]),
        (
            {"parameters": structs.replace(PARAMETERS, extra={"stop": [1]})},
            ["parameters.extra.stop [1, 2]", "[1]"],
        ),
        (
            {"parameters": structs.replace(PARAMETERS, max_new_tokens=9, extra={"seed": 4})},
            ["parameters.max_new_tokens 8", "parameters.extra.seed none", "parameters.extra.stop"],
        ),
    ],
)
def test_another_run_begins_anew_and_says_what_differs(tmp_path, change, named):
    RECORD.write(tmp_path / "run.json")
    other = with_plan(RECORD, **change)
    earlier = found(tmp_path, other)
    assert earlier.course == "anew"
    for said in (earlier.first_line, refusal(tmp_path, other, resume=True)):
        assert [part for part in named if part not in said] == []
        assert "top_p" not in said


def test_of_another_benchmark_only_its_name_is_said(tmp_path):
    RECORD.write(tmp_path / "run.json")
    client = structs.replace(RECORD.plan.client, benchmark=load_benchmark("llama3.1-8b"))
    other = structs.replace(RECORD, plan=structs.replace(RECORD.plan, client=client, model_key="another"))
    first_line = found(tmp_path, with_plan(other, samples=5)).first_line
    assert "benchmark gpt-oss-120b, this one has llama3.1-8b: " in first_line


@pytest.mark.parametrize("name", ["attempt.²", "attempt.x", "attempt.", "attempt.0", "attempt." + "9" * 200])
def test_a_folder_that_is_no_attempt_is_left_alone(tmp_path, name):
    (tmp_path / name).mkdir()
    RECORD.write(tmp_path / "run.json")
    assert found(tmp_path).course == "continue"
    assert archive_attempt(tmp_path) == tmp_path / "attempt.1"
    assert saved_answers(tmp_path, 96) == {}
    assert (tmp_path / name).is_dir()


def test_attempts_are_counted_by_number(tmp_path):
    for name in ("attempt.2", "attempt.10"):
        (tmp_path / name).mkdir()
    RECORD.write(tmp_path / "attempt.10" / "run.json")
    assert found(tmp_path).course == "continue"
    assert archive_attempt(tmp_path) == tmp_path / "attempt.11"


def test_the_record_of_an_attempt_is_moved_first(tmp_path, monkeypatch):
    """Killed in between, the folder holds no record of a complete run without its log."""
    answer(tmp_path, 3)
    complete(tmp_path)
    rename, moved = Path.rename, []

    def note(path, target):
        moved.append(path.name)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", note)
    attempt = archive_attempt(tmp_path)
    logs = [f"mlperf_log_{name}" for name in ("accuracy.json", "detail.txt", "summary.txt")]
    assert moved == ["run.json", "journal", *logs]
    assert sorted(path.name for path in attempt.iterdir()) == sorted(moved)


SERVE = "sglang/run_server.sh --benchmark deepseek-r1 --model_path data/models/DeepSeek-R1 --dp {} --tp {}"


@pytest.mark.parametrize(
    ("earlier", "now", "shown"),
    [
        ("serve", "serve --dp 2", ("serve", "serve --dp 2")),
        (None, SERVE, ("none", f"{SERVE[:77]}...")),
        (
            SERVE.format(8, 1),
            SERVE.format(4, 2),
            ("... data/models/DeepSeek-R1 --dp 8 --tp 1", "... data/models/DeepSeek-R1 --dp 4 --tp 2"),
        ),
        (SERVE, SERVE + 99 * "x", (f"...{SERVE[-30:]}", f"...{SERVE[-30:]}{44 * 'x'}...")),
    ],
)
def test_what_differs_is_shown_of_values_of_any_length(earlier, now, shown):
    """Both commands were cut before the flag that was another one, and read the same."""
    assert list(differences("command", earlier, now, "{}: {}; {}")) == ["command: {}; {}".format(*shown)]
