"""Servers during a run: replicas that are out, what counts as work, and what as another server."""

import re
import threading
from multiprocessing import Pipe

import pytest
from msgspec.structs import replace

from harness.errors import ServerError
from harness.record.journal import QUERIES_FILE, QUERY_ROW, encode_row
from harness.record.run_events import EventLog
from harness.record.server_changes import usable_samples, with_other_settings
from sut.client.endpoint import Access, AddressPair, Endpoint
from sut.servers import health
from sut.servers.discovery import discover
from sut.servers.health import (
    ActivityProbe,
    HealthMonitor,
    HealthRound,
    Recheck,
    ask_work,
    check_same_servers,
)
from tests.kit import DATA, wait_until
from tests.stub import StubServer, refused_url
from tests.sut.pages import LLAMA_MODELS, LLAMA_PROPS, facts, pages
from tests.sut.servers.test_info_pages import DEAD, GATEWAY, OUT, WELL


@pytest.fixture
def pipes():
    pairs = [Pipe() for _ in range(2)]
    yield pairs
    for pair in pairs:
        for end in pair:
            end.close()


def heard(pipe, seconds=60.0):
    assert pipe.poll(seconds), "the worker heard nothing"
    return pipe.recv()


def watching(pipes, ask, **more):
    return HealthMonitor(["http://a", "http://b"], [ours for ours, _ in pipes], ask, pause_s=0.05, **more)


def test_a_false_alarm(pipes):
    events = EventLog()
    watch = watching(pipes, lambda url: "", events=events)
    watch.suspected(1)
    assert [heard(theirs) for _, theirs in pipes] == [("trust", 1)] * 2
    for thread in threading.enumerate():
        if thread.name == "health":
            thread.join(60)
    assert events.events == ()
    assert not watch.outages
    assert watch.all_out_for() == (0.0, "")


def test_out_and_back(pipes):
    down = {"http://a", "http://b"}
    watch = watching(pipes, lambda url: f"{url}: refused" if url in down else "")
    watch.suspected(0)
    watch.suspected(0)  # the other worker complains too: it is asked once
    assert [heard(theirs) for _, theirs in pipes] == [("suspect", 0)] * 2
    assert watch.all_out_for()[0] == 0.0  # the other one is well
    watch.suspected(1)
    assert [heard(theirs) for _, theirs in pipes] == [("suspect", 1)] * 2
    seconds, why = watch.all_out_for()
    assert 0 <= seconds < 600  # and no moment of the clock
    assert why == "http://b: refused"
    down.clear()
    assert {heard(pipes[0][1]) for _ in range(2)} == {("trust", 0), ("trust", 1)}
    assert watch.all_out_for()[0] == 0.0
    assert len(watch.outages) == 2
    assert all(re.fullmatch(r"http://[ab] was out of use for \d{1,3} s", one) for one in watch.outages)


def test_of_servers_that_have_not_answered_nothing_is_said():
    seen = HealthRound(lambda url: "")
    assert seen.text(["http://a", "http://b"]) == ""
    seen.ask(["http://a", "http://b"])
    wait_until(lambda: seen.text(["http://a", "http://b"]) == "/health answers 200")
    assert seen.text(["http://a", "http://c"]) == ""


def test_of_several_servers_that_are_not_well_the_first_is_named():
    urls = ["http://a", "http://b", "http://c"]
    seen = HealthRound(lambda url: "" if url == urls[0] else f"{url}: 503")
    seen.ask(urls)
    wait_until(lambda: seen.text(urls))
    assert seen.text(urls) == "http://b: 503, and so 2 of 3 servers"
    assert seen.text(["http://b"]) == "http://b: 503"


@pytest.mark.parametrize(("out", "more"), [(5, []), (7, ["and 2 more replicas are out of use"])])
def test_of_many_replicas_that_are_out_the_first_five_are_named(out, more):
    urls = [f"http://node{number}" for number in range(out)]
    watch = HealthMonitor(urls, [], lambda url: "refused", pause_s=0.05)
    for replica in range(out):
        watch.suspected(replica)
    wait_until(lambda: watch.all_out_for()[1])
    named = watch.outages[:5]
    said = [re.fullmatch(r"(.*) has been out of use for \d{1,3} s: refused", line)[1] for line in named]
    assert said == urls[:5]
    assert [*watch.outages[5:]] == more
    watch.close()


def test_each_outage_is_an_event_that_names_its_server_once(pipes, caplog):
    events, down = EventLog(), {"http://a"}
    why = "not reachable ([Errno 111] Connection refused); start the server"

    def ask(url):
        return f"{url}: {why}" if url in down else ""

    watch = watching(pipes, ask, events=events)
    watch.suspected(0)
    assert heard(pipes[0][1]) == ("suspect", 0)
    assert watch.outages[0].count("http://a") == 1
    down.clear()
    wait_until(lambda: len(events.events) == 2)
    assert [(one.kind, one.server) for one in events.events] == [
        ("server_out", "http://a"),
        ("server_back", "http://a"),
    ]
    assert events.events[0].text == "not reachable ([Errno 111] Connection refused)"
    assert events.events[0].time_ns <= events.events[1].time_ns
    wait_until(lambda: len(caplog.messages) == 2)
    assert caplog.messages[0] == f"replica out of use: http://a: {why}"
    assert caplog.messages[1].startswith("http://a was out of use for ")


def test_an_outage_is_said_again_for_another_reason_only(pipes, caplog):
    answers = iter(["refused", "refused", "reset", "reset", ""])
    watch = watching(pipes, lambda url: next(answers))
    watch.suspected(0)
    wait_until(lambda: len(caplog.messages) == 3)
    assert caplog.messages[:2] == ["replica out of use: refused", "replica out of use: reset"]
    assert caplog.messages[2].endswith(" and is healthy again")


def test_a_server_whose_name_has_another_address_is_used_there(pipes, monkeypatch, caplog):
    """Also where its health, asked at the new address, was never seen to fail."""
    there = Endpoint("http://b:1", "b", (AddressPair(2, ("10.0.0.9", 1)),), tls=False, head=b"")
    before = replace(there, pairs=(AddressPair(2, ("10.0.0.5", 1)),))
    monkeypatch.setattr(health, "moved", lambda endpoint: None if endpoint == there else there)
    events = EventLog()
    watch = HealthMonitor(
        *(["http://b:1"], [ours for ours, _ in pipes], lambda url: ""),
        events=events,
        endpoints=[before],
    )
    watch.suspected(0)
    assert [heard(pipes[0][1]) for _ in range(2)] == [("moved", (0, there)), ("trust", 0)]
    wait_until(lambda: events.events)
    assert events.events[0].text == "in use again, at 10.0.0.9"
    watch.suspected(0)
    assert heard(pipes[0][1]) == ("trust", 0)
    assert len(watch.outages) == 1


def test_a_suspicion_right_after_a_recovery_is_the_last_word(pipes, monkeypatch):
    answers = iter(["refused", "", *["refused"] * 10_000])
    watch = watching(pipes, lambda url: next(answers))
    outage, told = ("suspect", 0), []

    def warn(text, *values):
        if "healthy again" in text:
            watch.suspected(0)
            while told.count(outage) < 2:
                told.append(heard(pipes[0][1]))

    monkeypatch.setattr(health.log, "warning", warn)
    watch.suspected(0)
    wait_until(lambda: told.count(outage) == 2)
    watch.close()
    assert told == [outage, ("trust", 0), outage]


def test_what_is_asked_when_the_run_ends_is_still_heard(pipes):
    ending = threading.Event()

    def ask(url):
        assert ending.wait(60)
        return "dead"

    watch = watching(pipes, ask)
    watch.suspected(1)
    threading.Timer(0.2, ending.set).start()
    watch.close()
    assert len(watch.outages) == 1


def test_close_ends_the_questions(pipes):
    asked = []
    watch = watching(pipes, lambda url: asked.append(url) or "dead")
    watch.suspected(0)
    heard(pipes[0][1])
    watch.close()
    wait_until(lambda: not watch._asking)
    assert asked
    (outage,) = watch.outages
    assert outage.startswith("http://a has been out of use for ")  # it was out at the end
    assert not pipes[0][1].poll()  # and no worker is to trust it


# Names as SGLang 0.5.23 and vLLM 0.32 write them; those of processes, HTTP and idleness change by themselves.
METRICS = b"""# HELP sglang:num_used_tokens The number of used tokens.
sglang:num_used_tokens{engine_type="unified"} %d
vllm:generation_tokens_total{engine="0"} 7.0
process_cpu_seconds_total %d
sglang:scheduler_process_cpu_seconds_total{tp_rank="0"} %d
sglang:scheduler_idle_seconds_total{tp_rank="0"} %d
sglang:scheduler_stage_seconds_total{category="recv_requests",tp_rank="0"} %d
python_gc_objects_collected_total{generation="0"} %d
http_requests_total{handler="/metrics"} %d
"""


def test_what_metrics_say_of_the_work():
    with StubServer() as stub:
        assert ask_work(stub.url, Access()) is None  # no such page
    pages = [METRICS % (5, *[1] * 6), METRICS % (5, *[2] * 6), METRICS % (6, *[2] * 6)]
    with StubServer(metrics=lambda: pages.pop(0)) as stub:
        idle, still, busy = (ask_work(stub.url, Access()) for _ in range(3))
    assert idle == still != busy
    steps = [b"[]", b'[{"iter": 7}]']  # TensorRT-LLM's, without and with its statistics
    with StubServer(metrics=lambda: steps.pop(0)) as stub:
        assert [ask_work(stub.url, Access()) for _ in range(2)] == [None, b'[{"iter": 7}]']
    with StubServer(metrics=lambda: b"# TYPE\nprocess_cpu_seconds_total 1.5\n") as stub:
        assert ask_work(stub.url, Access()) is None  # a page that never shows work
    with refused_url() as url:
        assert ask_work(url, Access()) is None


@pytest.mark.parametrize(
    ("pages", "wrong", "signs"),
    [
        ([b"1", b"2", b"3"], [""], [True, True, True]),
        ([b"1", b"1", b"2"], [""], [True, False, True]),
        ([b"1", b"2"], ["/health gave no answer"], [True, True]),  # busy, but at work
        ([None, None], [""], [True, True]),  # nothing but its word
        ([None, None], ["/health answered 503"], [False, False]),
        ([None] * 4, ["refused", ""], [True, True]),  # one replica at work is enough
    ],
)
def test_pulse(pages, wrong, signs):
    pages, wrong = iter(pages), {f"http://{number}": one for number, one in enumerate(wrong)}
    activity = ActivityProbe([*wrong], wrong.get, lambda url: next(pages))
    for sign in signs:
        activity.seen_s = 0.0
        activity.probe()
        activity._thread.join()
        assert (activity.seen_s > 0) is sign


# -- servers asked again


SGLANG = {
    "/health": b"",
    "/model_info": {"model_path": "openai/gpt-oss-120b", "weight_version": "default"},
    "/server_info": {
        "served_model_name": "gpt-oss-120b",
        "version": "0.5.23",
        "context_length": 4096,
        "vocab_size": 201088,
        "quantization": "mxfp4",
    },
}
VLLM = {
    "/health": b"",
    "/v1/models": {"data": [{"id": "gpt", "root": "/m/gpt-oss-120b", "owned_by": "vllm"}]},
    "/version": {"version": "0.32.0"},
}
LLAMA = {"/health": b"", "/v1/models": {"data": [LLAMA_MODELS]}, "/props": LLAMA_PROPS}
# Its own list names what it serves, not its path.
LISTED = {
    **SGLANG,
    "/v1/models": {"data": [{"id": "gpt-oss-120b", "root": "gpt-oss-120b", "owned_by": "sglang"}]},
}
BEHIND = {**SGLANG, "/workers": GATEWAY["/workers"]}


def changed(table, page, **values):
    return table | {page: table[page] | values}


def asked_again(before, after, tmp_path, backend="sglang"):
    """A recheck of a server whose pages are others than at the start, and what it answers."""
    table = dict(before)
    with pages(table) as url:
        recheck = Recheck(discover([url], backend, Access(), 20), backend, Access(), 20, tmp_path)
        table.clear()
        table.update(after)
        answer = recheck.recovered(url)
        warnings = recheck.ask_all(20)
    return recheck, answer, warnings


LIST = "/v1/models"
CHANGES = {
    "path": (
        SGLANG,
        changed(SGLANG, "/model_info", model_path="other"),
        ("model path", "openai/gpt-oss-120b", "other"),
    ),
    "weights": (
        SGLANG,
        changed(SGLANG, "/model_info", weight_version="v2"),
        ("weight version", "default", "v2"),
    ),
    "name": (SGLANG, changed(SGLANG, "/server_info", served_model_name="other"), ("gpt-oss-120b", "other")),
    "version": (SGLANG, changed(SGLANG, "/server_info", version="1"), ("version", "0.5.23", "1")),
    "vocabulary": (SGLANG, changed(SGLANG, "/server_info", vocab_size=7), ("vocabulary size", "201088", "7")),
    "context": (SGLANG, changed(SGLANG, "/server_info", context_length=8), ("context length", "4096", "8")),
    "path and no more pages": (
        SGLANG,
        {"/health": b"", "/model_info": {"model_path": "other"}},
        ("gpt-oss-120b", "other"),
    ),
    "name behind a router": (
        BEHIND,
        changed(BEHIND, "/server_info", served_model_name="o"),
        ("gpt-oss-120b", "o"),
    ),
    "vLLM": (
        VLLM,
        changed(VLLM, LIST, data=[VLLM[LIST]["data"][0] | {"root": "/m/o"}]),
        ("/m/gpt-oss-120b", "/m/o"),
    ),
    "quantization": (
        SGLANG,
        changed(SGLANG, "/server_info", quantization="fp8"),
        ("quantization", "mxfp4", "fp8"),
    ),
    "an option that was not given": (
        SGLANG,
        changed(SGLANG, "/server_info", preferred_sampling_params={"min_p": 0.5}),
        ("preferred sampling params", '{"min_p":0.5}'),
    ),
    "vLLM's version": (VLLM, changed(VLLM, "/version", version="0.33"), ("version", "0.32.0", "0.33")),
    "llama.cpp's file": (
        LLAMA,
        changed(LLAMA, "/props", model_path="/m/o.gguf"),
        ("model path", "/m/tiny.gguf", "/m/o.gguf"),
    ),
    "llama.cpp": (LLAMA, changed(LLAMA, LIST, data=[LLAMA_MODELS | {"id": "o"}]), ("tiny.gguf", "o")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_server(name, tmp_path):
    before, after, values = CHANGES[name]
    recheck, answer, warnings = asked_again(before, after, tmp_path, "openai" if LIST in before else "sglang")
    assert all(re.search(rf"(?<!\S){re.escape(value)}(?![\w.])", answer) for value in values), answer
    assert recheck.none_left() == answer
    (change,) = recheck.changes
    assert (change.replica, change.right_until_ns) == (0, 0)
    assert usable_samples(tmp_path) == frozenset()  # the journal has it, and no answer that is surely right
    assert warnings == ()


SAME = {
    "the same": (SGLANG, SGLANG, "", ()),
    "another setting": (
        SGLANG,
        changed(SGLANG, "/server_info", attention_backend="triton"),
        "",
        ("attention backend default is now triton",),
    ),
    "another path behind a router": (BEHIND, changed(BEHIND, "/model_info", model_path="/nfs/gpt"), "", ()),
    "another version behind a router": (
        BEHIND,
        changed(BEHIND, "/server_info", version="0.5.22"),
        "",
        ("version 0.5.23 is now 0.5.22",),
    ),
    "a name that was not there": (changed(SGLANG, "/server_info", version=None), SGLANG, "", ()),
    "a page less": (
        SGLANG,
        {name: page for name, page in SGLANG.items() if name != "/server_info"},
        "vocabulary size",
        ("vocabulary size",),
    ),
    "it starts": (SGLANG, SGLANG | {"/health": 503}, "503", ("503",)),
    "another kind": (SGLANG, VLLM, "/model_info", ("/model_info",)),
    # SGLang asked with --backend openai, where a proxy fails to pass on a page of its own.
    "no own pages any more": (LISTED, LISTED | {"/model_info": 502}, "model path", ("model path",)),
    "no own pages at the start": (LISTED | {"/model_info": 502}, LISTED, "", ()),
}


@pytest.mark.parametrize("name", SAME)
def test_no_other_server(name, tmp_path):
    before, after, wrong, words = SAME[name]
    recheck, answer, warnings = asked_again(before, after, tmp_path, "openai" if LIST in before else "sglang")
    assert wrong in answer and bool(wrong) is bool(answer) is (recheck.urls[0] in answer)
    assert (recheck.changes, recheck.none_left(), usable_samples(tmp_path)) == ((), "", None)
    kept = len([*with_other_settings(tmp_path)])  # asked twice, kept once
    assert kept == (name in ("another setting", "no own pages at the start"))
    assert bool(warnings) is bool(words)
    assert all(word in warnings[0] for word in words)


def test_a_server_that_died_behind_a_router(tmp_path):
    """The others take its queries: the router is in use, and a warning at the end names the loss."""
    before = SGLANG | {"/health": b"All servers healthy", "/workers": {"workers": [WELL, WELL]}}
    after = before | {"/health": OUT, "/workers": {"workers": [DEAD, WELL]}}
    recheck, answer, warnings = asked_again(before, after, tmp_path)
    assert (answer, recheck.changes, len(warnings)) == ("", (), 1)
    assert "vllm-router reports 1 of its 2 servers" in warnings[0]
    assert asked_again(after, after, tmp_path)[2] == ()  # said before the run


def test_a_server_that_is_gone_at_the_end_is_a_warning(tmp_path):
    with pages(SGLANG) as url:
        recheck = Recheck(discover([url], "sglang", Access(), 20), "sglang", Access(), 20, tmp_path)
    (warning,) = recheck.ask_all(20)
    assert url in warning


def test_a_defect_of_the_comparison_keeps_no_healthy_server_out(tmp_path, monkeypatch):
    with pages(SGLANG) as url:
        recheck = Recheck(discover([url], "sglang", Access(), 20), "sglang", Access(), 20, tmp_path)
        monkeypatch.setattr(health, "ask_server", lambda *_: {}["new"])
        assert recheck.recovered(url) == ""
        compared, unasked = recheck.ask_all(20)
    assert compared == (
        f"a defect of this program (KeyError: 'new'): no comparison of {url} with what it was"
    )
    assert unasked.startswith(f"not asked again at the end: {url} ('new'), so it is not known ")


def test_servers_are_watched_one_after_another(tmp_path):
    first, table, found, ended = dict(SGLANG), dict(SGLANG), [], threading.Event()
    other = {"model_path": "other", "weight_version": "default"}
    with pages(first) as good, pages(table) as bad:
        servers = discover([good, bad], "sglang", Access(), 20)
        recheck = Recheck(servers, "sglang", Access(), 20, tmp_path)
        recheck.on_change = found.append
        thread = threading.Thread(target=recheck.watch, args=(ended, 0.02))
        thread.start()
        wait_until(lambda: len(recheck._right_ns) == 2)
        table["/model_info"] = other
        wait_until(lambda: found)
        ended.set()
        thread.join()
        assert set(found) == {1}  # again where it is asked again before the end
        (change,) = recheck.changes
        assert change.right_until_ns > 0 and change.url == bad
        assert recheck.none_left() == ""
        first["/model_info"] = other
        assert recheck.recovered(good)
    assert recheck.none_left().startswith("all 2 servers have changed; the first: ")


# Of SGLang 0.5.23's /metrics: its start, and an update by /update_weights_from_disk with its own path.
STARTED = b"""# TYPE sglang:startup_time_seconds gauge
sglang:startup_time_seconds{engine_type="unified",model_name="openai/gpt-oss-120b",phase="load_weight"} %b
"""
UPDATED = b"""# TYPE sglang:weight_load_duration_seconds gauge
sglang:weight_load_duration_seconds{moe_ep_rank="0",pp_rank="0",source="disk",tp_rank="0"} %b
"""


def metrics(start, update=b""):
    return STARTED % start + (UPDATED % update if update else b"")


FIRST, LATER = metrics(b"0.31844050899962895", b"0.25362533700536005"), b"0.222174744005315"
UPDATES = {
    "the first": ([metrics(b"0.31844050899962895"), FIRST], True),
    "another": ([FIRST, metrics(b"0.31844050899962895", LATER)], True),
    "before the run": ([FIRST, FIRST], False),
    "a restart": ([FIRST, metrics(b"0.5")], False),
    "two servers at one address": ([FIRST, metrics(b"0.5"), FIRST, metrics(b"0.5"), FIRST], False),
    "no metrics of a start": ([b"a 1\n", UPDATED % LATER], False),
}


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_of_weights_shows_in_the_metrics(name, tmp_path):
    """Its name, path and version may be those that they were."""
    read, is_change = UPDATES[name]
    with pages(SGLANG) as url:
        recheck = Recheck(discover([url], "sglang", Access(), 20), "sglang", Access(), 20, tmp_path)
        found = []
        recheck.on_change = found.append
        for number, page in enumerate(read):
            recheck.page(url, page, number + 1.0)
            recheck.page("http://dcgm:9400", page, number + 1.0)
        assert recheck.ask_all(20) == ()
        assert ("weight updates tried in the run 0 is now 1;" in recheck.recovered(url)) is is_change
    assert [change.right_until_ns for change in recheck.changes] == [10**9] * is_change
    assert found == [0] * is_change  # it gets no more queries
    assert usable_samples(tmp_path) == (frozenset() if is_change else None)


@pytest.mark.parametrize("page", ["sglang_busy1.txt", "vllm_busy1.txt"])
def test_another_model_shows_in_the_metrics(page, tmp_path):
    """At once, where a performance run asks for no other page before its end."""
    first = (DATA / "metrics" / page).read_bytes()
    name = re.search(rb'model_name="(.*?)"', first)[1]
    with pages(SGLANG) as url:
        recheck = Recheck(discover([url], "sglang", Access(), 20), "sglang", Access(), 20, tmp_path)
    found = []
    recheck.on_change = found.append
    for number, read in enumerate((first, first, b"a 1\n", first.replace(name, b"gpt-oss-20b"), first)):
        recheck.page(url, read, number + 1.0)
    (change,) = recheck.changes
    assert (change.reason, change.right_until_ns) == (
        f"{url}: model {name.decode()} is now gpt-oss-20b",
        2 * 10**9,
    )
    assert found == [0]


@pytest.mark.parametrize(
    ("ended_ns", "in_flight", "is_lost"),
    [(2 * 10**9, 0, True), (10**9, 0, False), (10**9, 3, True), (None, 0, False)],
)
def test_a_changed_server_loses_a_measurement_of_which_it_has_answers(tmp_path, ended_ns, in_flight, is_lost):
    """Or requests, whose answers or failures come: it changed after 1 s."""
    names = [name for name in QUERY_ROW.names if name != "crc"]
    row = dict.fromkeys(names, 0) | {"last_byte_ns": ended_ns or 0}
    data = b"" if ended_ns is None else encode_row(*row.values())
    (tmp_path / QUERIES_FILE.format(0)).write_bytes(data)
    with pages(SGLANG) as url:
        recheck = Recheck(discover([url], "sglang", Access(), 20), "sglang", Access(), 20, tmp_path)
    assert recheck.doubt([8]) == ""
    for number, page in enumerate(UPDATES["the first"][0]):
        recheck.page(url, page, number + 1.0)
    words = recheck.doubt([in_flight])
    assert words.endswith("is now 1, and its answers may be of either; start it as it was") is is_lost
    assert recheck.doubt([0]) == words  # though the requests have ended


def test_the_servers_of_a_search_stay_the_same():
    servers = [facts("http://a", model="m"), facts("http://b", model="m")]
    check_same_servers(servers, servers)
    with pytest.raises(ServerError, match=r"http://b: .*\bm\b.*\bother\b.*repeat"):
        check_same_servers(servers, [servers[0], facts("http://b", model="other")])
