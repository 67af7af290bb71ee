"""/metrics pages of servers, asked for during a run: what is kept of them, and servers that have none."""

import asyncio
import itertools
import re
import socket
import sys
import threading
import time
from functools import partial
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from harness.analysis.server_load import read_samples, server_load
from harness.config.scenario import Scenario
from harness.files import SERVER_METRICS
from sut.client.endpoint import Access
from sut.run import _gpus as gpus_of
from sut.servers import gpus as gpus_module
from sut.servers import scrape
from sut.servers.gpus import LocalGpus
from sut.servers.scrape import MetricsScraper
from tests.kit import DATA, PATIENCE_S, listening, read_request, wait_until
from tests.records import ENDED
from tests.stub import StubServer, refused_url

# Of SGLang 0.5.23 and vLLM 0.32 on a CPU, some without comments, most without buckets.
PAGES = DATA / "metrics"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(scrape, "EVERY_S", 0.01)
    monkeypatch.setattr(scrape, "_LEAST_PAUSE_S", 0.01)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Only servers that never answer are meant to be late, whatever else the machine does."""
    monkeypatch.setattr(scrape, "_ANSWER_S", 20.0)
    monkeypatch.setattr(scrape, "_NICE", 0)
    monkeypatch.setattr(scrape, "_END_S", PATIENCE_S)


def scraper_of(folder, *urls, wire="sglang"):
    return MetricsScraper([replace(ENDED.servers[0], url=url, wire=wire) for url in urls], folder, Access())


def scraped(scraper):
    """What it found from its start to its end: the first round and the last."""
    scraper.start()
    return scraper.stop()


def rows(folder):
    return pq.read_table(folder / SERVER_METRICS).to_pylist()


@pytest.mark.parametrize(
    ("page", "name", "labels", "value"),
    [
        ("sglang_busy1.txt", "sglang:num_queue_reqs", 'engine_type="unified"', 32.0),
        ("sglang_after.txt", "sglang:cached_tokens_total", 'cache_source="', 39.0),
        ("vllm_busy1.txt", "vllm:num_requests_running", 'engine="0"', 16.0),
        ("vllm_after.txt", "vllm:generation_tokens_total", 'engine="0"', 10800.0),
    ],
)
def test_recorded_pages_are_kept(tmp_path, page, name, labels, value):
    text = (PAGES / page).read_bytes()
    with StubServer(metrics=lambda: text) as stub:
        found = scraped(scraper_of(tmp_path, stub.url))
    assert (found.without, found.warnings) == ({}, ())
    first, last = (row for row in rows(tmp_path) if row["name"] == name)
    assert first["time_ns"] < last["time_ns"]
    for row in (first, last):
        assert (row["replica"], row["value"]) == (stub.url, value)
        assert labels in row["labels"]
    assert not [row for row in rows(tmp_path) if row["name"].endswith(("_bucket", "_created"))]


def test_the_first_reading_is_before_the_run(tmp_path):
    """What servers count after it is of the run's queries; before, a cache's first hits were in it."""
    hits = 0
    with StubServer(metrics=lambda: b"sglang:cached_tokens_total %d\n" % hits) as stub:
        scraper = scraper_of(tmp_path, stub.url)
        scraper.start()
        hits = 39
        scraper.stop()
    assert [row["value"] for row in rows(tmp_path)] == [0.0, 39.0]


def test_rounds_follow_each_other(tmp_path, quick):
    asked = []

    def page():
        asked.append(b"a_total %d\n" % len(asked))
        return asked[-1]

    with StubServer(metrics=page) as stub:
        scraper = scraper_of(tmp_path, stub.url)
        scraper.start()
        wait_until(lambda: len(asked) > 20)
        scraper.stop()
    values = [row["value"] for row in rows(tmp_path)]
    assert len(values) > 20 and values == sorted(values)


def endless(connection):
    """More than any page."""
    read_request(connection)
    connection.sendall(OK % (100 << 20))
    for _ in range(100):
        connection.sendall(b"a 1\n" * (1 << 18))


def garbage(connection):
    read_request(connection)
    connection.sendall(OK % 9 + b"\x00\xff\x1b[2J\n{}")


def no_http(connection):
    read_request(connection)
    connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        (endless, "more than 4 MiB"),
        (garbage, "no numbers in the format of Prometheus"),
        (no_http, "/metrics"),
    ],
)
def test_bad_pages_leave_the_others(tmp_path, serve, reason, caplog):
    caplog.set_level("INFO", "mlperf")
    with listening(serve) as bad, StubServer(metrics=lambda: b"good 1\n") as good, StubServer() as none:
        found = scraped(scraper_of(tmp_path, bad, good.url, none.url))
    (line,) = caplog.messages
    assert line.startswith(f"no metrics of 2 of 3 servers: {bad}: /metrics") and good.url not in line
    assert found.without.keys() == {bad, none.url}
    assert reason in found.without[bad]
    assert found.without[bad].isprintable()
    assert "404" in found.without[none.url]
    assert {(row["replica"], row["value"]) for row in rows(tmp_path)} == {(good.url, 1.0)}


def test_a_server_that_hangs_holds_up_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(scrape, "_ANSWER_S", 0.3)
    over = threading.Event()
    with listening(lambda connection: over.wait(60)) as hung, refused_url() as refused:
        found = scraped(scraper_of(tmp_path, hung, refused))
        over.set()
    assert "0.3 s" in found.without[hung]
    assert found.without.keys() == {hung, refused}
    assert not (tmp_path / SERVER_METRICS).exists()


def test_many_servers_that_hang_lose_no_page_of_the_others(tmp_path, monkeypatch):
    """512 of them, 32 at once, take 32 s: a shorter run ended before its first reading did."""
    for name, value in {"_ANSWER_S": 1.0, "_LAST_S": 0.1, "_AT_ONCE": 1, "_END_S": 30.0}.items():
        monkeypatch.setattr(scrape, name, value)
    with socket.create_server(("0.0.0.0", 0)) as never, StubServer(metrics=lambda: b"good 1\n") as good:
        hanging = [f"http://127.0.0.{number}:{never.getsockname()[1]}" for number in range(1, 91)]
        found = scraped(scraper_of(tmp_path, good.url, *hanging))
    assert (found.warnings, found.without.keys()) == ((), set(hanging))
    assert set(found.without.values()) == {
        "/metrics gave no answer within 1 s",
        "not asked before the end of the run",
    }
    assert {(row["replica"], row["value"]) for row in rows(tmp_path)} == {(good.url, 1.0)}


def test_a_pause_of_the_thread_is_not_the_server_s():
    """Of low priority on a busy machine it may stand still for longer than an answer may take."""

    async def answer():
        time.sleep(0.3)
        for _ in range(5):
            await asyncio.sleep(0)
        return b"a 1\n"

    assert asyncio.run(scrape._within(0.2, answer())) == b"a 1\n"


def test_a_name_is_looked_up_again_where_its_server_does_not_answer(tmp_path, quick, monkeypatch):
    """A run of hours asks hundreds of servers every 5 s, and a slow resolver would make each page late."""
    places, known, lookups, asked = ["127.0.0.2"], socket.getaddrinfo, [], []

    def look_up(host, *others, **named):
        lookups.extend([host] * (host == "pod.test"))
        return known(places[-1] if host == "pod.test" else host, *others, **named)

    def page():
        asked.append(places[-1])
        return b"a 1\n"

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with StubServer(host="127.0.0.2", metrics=page) as first:
        scraper = scraper_of(tmp_path, first.url.replace("127.0.0.2", "pod.test"))
        scraper.start()
        wait_until(lambda: len(asked) > 20)
        assert len(lookups) == 1
        with StubServer(host="127.0.0.3", port=first.port, metrics=page):
            first.stop()
            places.append("127.0.0.3")
            wait_until(lambda: len(lookups) > 1)
            asked.clear()
            wait_until(lambda: asked)
            scraper.stop()


def test_a_slow_resolver_holds_up_no_page_of_the_others(tmp_path, quick, monkeypatch):
    """Its answer counts when it comes: one whose first server is dead takes 5 s and more."""
    known, over, asked = socket.getaddrinfo, threading.Event(), {"good": 0, "late": 0}

    def look_up(host, *others, **named):
        if host == "late.test":
            over.wait(PATIENCE_S)
        return known("127.0.0.1" if host == "late.test" else host, *others, **named)

    def page(name):
        asked[name] += 1
        return b"a 1\n"

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(scrape, "_ANSWER_S", 0.3)
    with StubServer(metrics=partial(page, "good")) as good, StubServer(metrics=partial(page, "late")) as late:
        scraper = scraper_of(tmp_path, good.url, late.url.replace("127.0.0.1", "late.test"))
        scraper.start()
        wait_until(lambda: asked["good"] > 2)
        assert not asked["late"]
        over.set()
        wait_until(lambda: asked["late"])
        scraper.stop()


def test_a_resolver_that_hangs_costs_no_page_of_the_others(tmp_path, quick, monkeypatch):
    known, over = socket.getaddrinfo, threading.Event()

    def look_up(host, *others, **named):
        if host == "late.test":
            over.wait(PATIENCE_S)
        return known(host, *others, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(scrape, "_ANSWER_S", 0.1)
    monkeypatch.setattr(scrape, "_END_S", 3.0)
    with StubServer(metrics=lambda: b"a 1\n") as stub:
        scraper = scraper_of(tmp_path, stub.url, "http://late.test:1")
        scraper.start()
        found = scraper.stop()
    over.set()
    assert found.warnings == () and rows(tmp_path)
    assert found.without == {"http://late.test:1": "the resolver gave no answer within 0.1 s"}


def test_a_server_that_fails_later_is_no_server_without(tmp_path, quick):
    pages = iter([b"a 1\n"] * 3)
    with StubServer(metrics=lambda: next(pages, b"")) as stub:
        scraper = scraper_of(tmp_path, stub.url)
        scraper.start()
        wait_until(lambda: scraper._servers[0].failures)
        found = scraper.stop()
    assert found.without == {}
    assert len(rows(tmp_path)) == 3


@pytest.mark.parametrize("broken", [b"<html>502 Bad Gateway</html>", None])
def test_a_server_whose_metrics_stop_is_told_each_time(tmp_path, quick, caplog, broken):
    """SGLang's page, and in its place HTML of a gateway, or the page with NaN for each number."""
    good = (PAGES / "sglang_busy1.txt").read_bytes()
    broken = broken or re.sub(rb"(?m)^([^#].*) \S+$", rb"\1 NaN", good)
    pages, given = [good], []

    def page():
        given.append(pages[-1])
        return pages[-1]

    with StubServer(metrics=page) as stub:
        scraper = scraper_of(tmp_path, stub.url)
        scraper.start()
        for times in (1, 2):
            pages.append(broken)
            wait_until(lambda times=times: len(caplog.messages) == times)
            pages.append(good)
            asked = len(given)
            wait_until(lambda asked=asked: len(given) > asked + 2)
        found = scraper.stop()
    assert found.without == {}
    (text,) = found.warnings
    assert (
        f"1 of 1 servers that had them ({stub.url}: /metrics shows no numbers in the format of Prometheus)"
        in text
    )
    assert caplog.messages == [f"warning: {text}"] * 2


def test_a_server_without_metrics_is_asked_seldom(tmp_path, quick):
    asked, without = [], []
    with (
        StubServer(metrics=lambda: asked.append(1) or b"a 1\n") as stub,
        StubServer(metrics=lambda: without.append(1) or b"") as none,
    ):
        scraper = scraper_of(tmp_path, stub.url, none.url)
        scraper.start()
        wait_until(lambda: len(asked) > 25)
        scraper.stop()
    assert 5 <= len(without) <= 4 + len(asked) // 10


# The DCGM exporter's default columns, with made-up values.
DCGM = b"""# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",Hostname="node"} 1980
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",Hostname="node"} 61
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",Hostname="node"} 650.5
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3"} %d
"""


def test_exporters_of_gpus_are_asked_without_the_key(tmp_path):
    energy, heads = itertools.count(5000, 2000), []

    def exporter(connection):
        while request := read_request(connection):
            heads.append(request[0])
            page = DCGM % next(energy)
            connection.sendall(OK % len(page) + page)

    page = b"vllm:num_requests_running 1\n"
    with StubServer(api_key="secret", metrics=lambda: page) as server, listening(exporter) as url:
        servers = [replace(ENDED.servers[0], url=server.url)]
        found = scraped(MetricsScraper(servers, tmp_path, Access("secret"), dcgm_urls=[url]))
    assert found.without == {}
    assert heads and not [head for head in heads if b"secret" in head]
    samples = read_samples(tmp_path / SERVER_METRICS)
    assert samples.servers == 1
    assert samples.levels["gpu_power"].total.tolist() == [650.5] * 2
    load = server_load(samples, {}, Scenario.SERVER, output_tokens=10)
    assert load.gpus_j_per_token == 0.2


class NvmlError(Exception):
    pass


class AmdSmiError(Exception):
    pass


def unsupported(*_, error=AmdSmiError):
    raise error("Error code:\n\t2 | AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported")


def made_up_nvml(count=2, driver=True):
    """Functions of nvidia-ml-py: the second GPU has no energy counter and is too hot."""
    return SimpleNamespace(
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=70_000 << 20),
        NVMLError=NvmlError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: driver or unsupported(error=NvmlError),
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetPowerUsage=lambda handle: 650_500,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: unsupported(error=NvmlError) if handle else 7000,
        nvmlDeviceGetClockInfo=lambda handle, kind: 1980,
        nvmlDeviceGetTemperature=lambda handle, sensor: 61 + handle,
        nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=99),
        # Idle; power limit and heat.
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: (0x1, 0x24)[handle],
    )


def made_up_amdsmi(count=2, driver=True, **functions):
    """Functions of ROCm 6.3's amdsmi: a second GPU has no energy counter, and throttles between pages."""
    pages = [itertools.count(), itertools.count()]

    def metrics(handle):
        page = next(pages[handle]) // 2  # two questions for each page
        return {
            "accumulation_counter": 1000 + 5000 * page,
            "prochot_residency_acc": "N/A",
            "ppt_residency_acc": 10 + 4000 * page * handle,
            "socket_thm_residency_acc": 20 + 1000 * page * handle,
            "vr_thm_residency_acc": 2**64 - 1,
            "hbm_thm_residency_acc": 30,
        }

    usual = {
        "amdsmi_init": lambda: driver or unsupported(),
        "amdsmi_get_processor_handles": lambda: list(range(count)),
        "amdsmi_get_power_info": lambda handle: {"current_socket_power": 650, "average_socket_power": "N/A"},
        "amdsmi_get_energy_count": lambda handle: (
            unsupported() if handle else {"energy_accumulator": 458_752, "counter_resolution": 15.259}
        ),
        "amdsmi_get_clock_info": lambda handle, kind: {"clk": 1980, "max_clk": 2100},
        "amdsmi_get_temp_metric": lambda handle, sensor, metric: 61 + handle,
        "amdsmi_get_gpu_activity": lambda handle: {"gfx_activity": 99, "mm_activity": "N/A"},
        "amdsmi_get_gpu_vram_usage": lambda handle: {"vram_total": 196_592, "vram_used": 70_000},
        "amdsmi_get_gpu_metrics_info": metrics,
    }
    return SimpleNamespace(
        AmdSmiException=AmdSmiError,
        AmdSmiClkType=SimpleNamespace(GFX=0),
        AmdSmiTemperatureType=SimpleNamespace(HOTSPOT=1),
        AmdSmiTemperatureMetric=SimpleNamespace(CURRENT=0),
        **usual | functions,
    )


@pytest.fixture
def libraries(monkeypatch):
    def install(nvml, amdsmi):
        monkeypatch.setitem(sys.modules, "pynvml", nvml and nvml())
        monkeypatch.setitem(sys.modules, "amdsmi", amdsmi and amdsmi())
        return LocalGpus()

    return install


@pytest.mark.parametrize(
    ("version", "driver"),
    [(lambda: 13000, {"driver": "580.65", "cuda": (13, 0)}), (None, {"driver": "580.65"})],
)
def test_facts_of_nvidia_gpus_are_those_that_there_are(libraries, version, driver):
    """In a container without the driver's CUDA library there is no version of it."""
    made = made_up_nvml()
    made.nvmlSystemGetDriverVersion = lambda: b"580.65"  # bytes in earlier versions
    made.nvmlSystemGetCudaDriverVersion = version or partial(unsupported, error=NvmlError)
    made.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, made.NVML_VOLATILE_ECC = 1, 0
    made.nvmlDeviceGetTotalEccErrors = lambda handle, *_: unsupported(error=NvmlError) if handle else 3
    made.NVML_FEATURE_ENABLED = 1
    made.nvmlDeviceGetEccMode = lambda handle: unsupported(error=NvmlError) if handle else [0, 1]
    assert libraries(lambda: made, None).facts() == [driver | {"ecc": {0: False}, "ecc_uncorrected": {0: 3}}]


@pytest.mark.parametrize(
    ("functions", "driver"),
    [
        ({"amdsmi_get_gpu_driver_info": lambda handle: {"driver_version": "6.12"}}, {"driver": "6.12"}),
        ({"amdsmi_get_gpu_driver_info": lambda handle: "6.12"}, {}),
        ({}, {}),
    ],
    ids=["of its version", "of another form", "of no such function"],
)
def test_facts_of_amd_gpus_are_those_that_there_are(libraries, functions, driver):
    counts = {"amdsmi_get_gpu_total_ecc_count": lambda handle: {"uncorrectable_count": ("N/A", 2)[handle]}}
    found = libraries(None, partial(made_up_amdsmi, **functions, **counts))
    assert found.facts() == [driver | {"ecc_uncorrected": {1: 2}}]


LEVELS = {
    "gpu_clock": (1980, 1980),
    "gpu_temperature": (61.5, 62),
    "gpu_use": (99, 99),
    "gpu_memory": (70_000, 70_000),
}
NVIDIA = {"gpu_power": (650.5, 650.5), "gpu_slowed": (0.5, 1), "gpu_power_limited": (0.5, 1)}
# In a part of the second GPU's time between the two pages.
AMD = {"gpu_power": (650, 650), "gpu_slowed": (0.1, 0.2), "gpu_power_limited": (0.4, 0.8)}
no_nvml, no_amdsmi = partial(made_up_nvml, driver=False), partial(made_up_amdsmi, driver=False)


@pytest.mark.parametrize(
    ("nvml", "amdsmi", "gpus", "levels"),
    [
        (made_up_nvml, None, 2, NVIDIA),
        (None, made_up_amdsmi, 2, AMD),
        (no_nvml, made_up_amdsmi, 2, AMD),
        (made_up_nvml, no_amdsmi, 2, NVIDIA),
        # Two pages of the one, the second of the other.
        (made_up_nvml, made_up_amdsmi, 4, {"gpu_power": (650.25, 650.5), "gpu_slowed": (2.2 / 6, 1)}),
    ],
)
def test_gpus_of_this_machine(tmp_path, libraries, nvml, amdsmi, gpus, levels):
    found = libraries(nvml, amdsmi)
    assert len(found) == gpus
    assert scraped(MetricsScraper([], tmp_path, Access(), gpus=found)).warnings == ()
    figures = read_samples(tmp_path / SERVER_METRICS).figures
    assert len(figures) == len(LEVELS | NVIDIA)
    assert {key: (figures[key].mean, figures[key].max) for key in LEVELS | levels} == {
        key: pytest.approx(expected) for key, expected in (LEVELS | levels).items()
    }


# As earlier versions of ROCm's amdsmi answer, and a GPU that lacks the value.
ANSWERS = [
    ("power_info", {"average_socket_power": 300}, "POWER_USAGE", True),  # 5.7
    ("power_info", {"current_socket_power": 0xFFFF, "average_socket_power": 300}, "POWER_USAGE", True),  # 6.0
    ("clock_info", {"cur_clk": 300}, "SM_CLOCK", True),  # 6.1
    ("energy_count", {"power": 60_000, "counter_resolution": 5.0}, "TOTAL_ENERGY_CONSUMPTION", True),  # 6.1
    ("energy_count", {"energy_accumulator": 60_000}, "TOTAL_ENERGY_CONSUMPTION", False),
    ("gpu_activity", {"gfx_activity": "N/A"}, "GPU_UTIL", False),
    ("gpu_activity", object(), "GPU_UTIL", False),
    ("gpu_activity", AmdSmiError(), "GPU_UTIL", False),
]


@pytest.mark.parametrize(("function", "answer", "row", "has"), ANSWERS)
def test_answers_of_amdsmi(libraries, function, answer, row, has):
    def asked(*_):
        if isinstance(answer, AmdSmiError):
            raise answer
        return answer

    page = libraries(None, partial(made_up_amdsmi, 1, **{f"amdsmi_get_{function}": asked})).page().decode()
    assert (f'DCGM_FI_DEV_{row}{{gpu="0"}} 300' in page) is (row in page) is has
    assert "GPU_TEMP" in page


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("nvml", "amdsmi", "gpus", "said"),
    [
        (no_nvml, made_up_amdsmi, 2, ["NVML"]),
        (no_nvml, None, 0, ["NVML"]),
        (None, no_amdsmi, 0, ["amdsmi"]),
        (no_nvml, no_amdsmi, 0, ["NVML", "amdsmi"]),
        (made_up_nvml, None, 2, []),
        (partial(made_up_nvml, 0), partial(made_up_amdsmi, 0), 0, []),
        (None, None, 0, []),
    ],
)
def test_a_library_that_fails_is_said_once(libraries, caplog, nvml, amdsmi, gpus, said, dry_run):
    caplog.set_level("INFO", "mlperf")
    libraries(nvml, amdsmi)
    client = SimpleNamespace(backend="embedded", dry_run=dry_run)
    found = gpus_of(SimpleNamespace(dcgm_urls=(), client=client))
    assert len(found or ()) == gpus
    assert len(caplog.messages) == (dry_run or bool(said))
    assert [name for name in said if caplog.text.count(f"{name}: ") != 1] == []


def test_a_driver_that_hangs_is_left(libraries, monkeypatch):
    monkeypatch.setattr(gpus_module, "_START_S", 0.01)
    hung = threading.Event()
    gpus = libraries(None, partial(made_up_amdsmi, amdsmi_init=hung.wait))
    hung.set()
    assert len(gpus) == 0
    assert gpus.failures


@pytest.mark.parametrize(
    "error", ["KeyError('libamd_smi.so')", "OSError('no file')", "ImportError('no name')"]
)
def test_amdsmi_without_its_library(tmp_path, monkeypatch, capsys, error):
    """ROCm's module prints, and fails in another way in each version."""
    (tmp_path / "amdsmi.py").write_text(f"print('Unable to find')\nraise {error}\n")
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (failure,) = LocalGpus().failures
    assert failure.startswith("amdsmi")
    assert not capsys.readouterr().out


@pytest.mark.parametrize("trusted", [True, False])
def test_a_page_over_tls_needs_a_certificate_that_is_trusted(tmp_path, tls, certificate, trusted):
    access = Access(ca_file=certificate[0] if trusted else None)
    with StubServer(metrics=lambda: b"a_total 1\n", tls=tls) as stub:
        server = replace(ENDED.servers[0], url=stub.url, wire="sglang")
        found = scraped(MetricsScraper([server], tmp_path, access))
    said = [text for text in found.without.values() if "CERTIFICATE_VERIFY_FAILED" in text]
    assert (len(said), len(found.without)) == ((0, 0) if trusted else (1, 1))


def test_tensorrt_llm_is_not_asked(tmp_path):
    """Its page takes away the statistics that it shows."""
    with StubServer(metrics=lambda: b"a 1\n") as stub:
        assert scraped(scraper_of(tmp_path, stub.url, wire="trtllm")).without == {stub.url: "not asked"}
        assert stub.connections == 0


def test_a_defect_of_ours_costs_no_page(tmp_path, caplog):
    taken = []
    with StubServer(metrics=lambda: b"a 1\n") as stub:
        scraper = scraper_of(tmp_path, stub.url)
        scraper.start(lambda url, page, now_s: {}["new"], lambda url, page, now_s: taken.append(page))
        (warning,) = scraper.stop().warnings
    text = "a defect of this program (KeyError: 'new'): no alarm by some of the servers' metrics"
    assert warning == text and caplog.messages == [f"warning: {text}"]
    assert taken == [b"a 1\n"] * 2
    assert [row["value"] for row in rows(tmp_path)] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("part", "missing", "files"),
    [
        ("MetricsWriter.add", f"complete {SERVER_METRICS}", [SERVER_METRICS]),
        ("MetricsWriter", SERVER_METRICS, []),
    ],
)
def test_a_defect_of_its_writer_is_a_warning(tmp_path, monkeypatch, part, missing, files):
    monkeypatch.setattr(f"sut.servers.scrape.{part}", lambda *_: {}["new"])
    with StubServer(metrics=lambda: b"a 1\n") as stub:
        found = scraped(scraper_of(tmp_path, stub.url))
    assert found.warnings == (f"a defect of this program (KeyError: 'new'): no {missing}",)
    assert [path.name for path in tmp_path.iterdir()] == files


def test_rows_that_have_no_room_are_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr("harness.record.server_metrics._MOST_OTHER_ROWS", 1)
    with StubServer(metrics=lambda: b"a 1\nb 2\n") as stub:
        found = scraped(scraper_of(tmp_path, stub.url))
    assert found.warnings == (f"{SERVER_METRICS} reached its largest size and is not complete",)
    assert [row["value"] for row in rows(tmp_path)] == [1.0]


def test_a_folder_that_is_gone_is_a_warning(tmp_path):
    with StubServer(metrics=lambda: b"a 1\n") as stub:
        (warning,) = scraped(scraper_of(tmp_path / "gone", stub.url)).warnings
    assert SERVER_METRICS in warning


def test_what_was_never_started_can_be_stopped(tmp_path):
    assert scraper_of(tmp_path, "http://127.0.0.1:1").stop().warnings == ()
