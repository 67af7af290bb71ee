"""The file of a campaign: the submitter's TOML with its servers, benchmarks and scenarios."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from harness.campaign.digests import Digests
from harness.campaign.rehearsal import BACKEND
from harness.campaign.variables import expanded
from harness.config.benchmark import Benchmark, load_benchmark
from harness.config.choices import OUTPUT_DIR, available_benchmarks
from harness.config.deadlines import parse_duration
from harness.config.protocol import Api
from harness.config.rounds import available_rounds
from harness.config.run_options import Backend
from harness.config.scenario import Scenario
from harness.config.server_urls import with_scheme
from harness.errors import ConfigError
from harness.submission.building.descriptions import SubmitterInfo, read_submitter_info
from harness.toml_files import converted, meant

SEARCH = "search"


class Servers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The servers of a benchmark or of a scenario; a nearer table replaces single values of a wider one."""

    command: str | None = None
    """starts them, in the folder of the TOML; None: they run already and are never touched"""
    url: tuple[str, ...] | str = ()
    """as `--server-url`; empty for its default"""
    backend: Backend | None = None
    """as `--backend`; None for its default"""
    api: Api | None = None
    """as `--api`; None for the backend's own"""
    wait: str | int = "1h"
    """the longest wait until they are ready; a number is of seconds"""


class ScenarioPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[benchmarks.NAME.SCENARIO]``."""

    target_qps: float | str | None = None
    """LoadGen's, or `search` for the highest that passes; None: that of `user_conf`"""
    target_latency: float | None = None
    """LoadGen's expected ms of a query, SingleStream only"""
    servers: dict[str, Any] = {}
    """what differs from the benchmark's"""
    flags: tuple[str, ...] | str = ()
    """further flags of the runs: a list of words, or one text as in a shell"""


class BenchmarkPart(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"single_stream": "single-stream"},
):
    """``[benchmarks.NAME]``. Files are paths from the TOML's folder; those of the download need no line."""

    performance: Path | None = None
    """the dataset of performance runs"""
    accuracy: Path | None = None
    """the dataset of accuracy runs, with the true answers"""
    compliance: Path | None = None
    """the dataset of TEST07"""
    lcb_data: Path | None = None
    """as the evaluator's `--lcb-data`"""
    tokenizer: str | None = None
    """as `--tokenizer` of the evaluator, and of runs, which encode texts with it"""
    user_conf: Path | None = None
    """LoadGen settings beside target_qps"""
    servers: dict[str, Any] = {}
    """what differs from `[servers]`"""
    flags: tuple[str, ...] | str = ()
    """further flags of all runs, the same"""
    offline: ScenarioPart | None = None
    server: ScenarioPart | None = None
    interactive: ScenarioPart | None = None
    single_stream: ScenarioPart | None = None

    @property
    def scenarios(self) -> dict[Scenario, ScenarioPart]:
        """The scenarios that have a table."""
        parts = {one: getattr(self, one.replace("-", "_")) for one in Scenario}
        return {scenario: part for scenario, part in parts.items() if part is not None}


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign, checked. Paths are absolute."""

    file: Path
    info: SubmitterInfo
    """the facts of the submitter"""
    results: Path
    """holds a folder of runs for each benchmark, and the campaign's own"""
    output: Path
    """the folder to submit"""
    benchmarks: dict[str, tuple[Benchmark, BenchmarkPart]]
    rehearsal: bool
    digests: Digests
    """of the files that its steps read and leave"""

    @property
    def folder(self) -> Path:
        """The campaign's own files."""
        return self.digests.folder

    @property
    def strict(self) -> bool:
        """Whether only official runs, met targets and passed tests count."""
        return self.info.division == "closed" and not self.rehearsal

    def scenario_servers(self, name: str, scenario: Scenario) -> Servers:
        """The servers of one scenario; a rehearsal has its own. Raises ConfigError."""
        if self.rehearsal:
            return Servers(backend=BACKEND)
        found = self._written(name, scenario)
        urls = tuple(with_scheme(expanded(self.folder, url)) for url in _urls(found))
        return msgspec.structs.replace(found, url=urls)

    def urls(self) -> Iterator[str]:
        """Every URL as the file writes it, with http:// before HOST:PORT."""
        for name, (_, part) in self.benchmarks.items():
            for scenario in part.scenarios:
                yield from _urls(self._written(name, scenario))

    def addresses_change(self, name: str, scenario: Scenario) -> bool:
        """Whether the servers may have other addresses after a restart: in a job, a cluster, by a command."""
        written = self._written(name, scenario)
        return written.command is not None or any(
            "$" in url or not url.startswith("http") for url in _urls(written)
        )

    def _written(self, name: str, scenario: Scenario) -> Servers:
        part = self.benchmarks[name][1]
        merged = self.info.servers | part.servers | part.scenarios[scenario].servers
        found: Servers = converted(str(self.file), merged, Servers, f"servers of {name} {scenario}")
        parse_duration(f"{self.file}: wait of the servers", str(found.wait))
        return found

    def path(self, path: Path) -> Path:
        """A path of the TOML."""
        return self.file.parent / path


def _urls(servers: Servers) -> tuple[str, ...]:
    return tuple(map(with_scheme, (servers.url,) if isinstance(servers.url, str) else servers.url))


def read_campaign(path: Path, *, rehearsal: bool = False) -> Campaign:
    """Read the file. Raises ConfigError with the place in it and, for a typo, what may be meant."""
    path = path.absolute()
    info = read_submitter_info(path)
    if not info.benchmarks:
        raise ConfigError(
            f"{path}: it has no [benchmarks.NAME.SCENARIO], such as [benchmarks.gpt-oss-120b.offline]; see "
            "configs/submission/example.toml"
        )
    if info.round not in (None, *available_rounds()):
        raise ConfigError(f"{path}: round is {info.round!r}, expected one of {', '.join(available_rounds())}")
    benchmarks = {
        _benchmark_name(path, name): (load_benchmark(name, info.round), _benchmark(path, name, fields))
        for name, fields in info.benchmarks.items()
    }
    results = path.parent / (info.results or OUTPUT_DIR)
    output = path.parent / (info.output or "submission")
    if rehearsal:
        results, output = results.with_name(f"{results.name}_rehearsal"), output.with_name("rehearsal")
    campaign = Campaign(
        file=path,
        info=info,
        results=results,
        output=output,
        benchmarks=benchmarks,
        rehearsal=rehearsal,
        digests=Digests(results / "campaign"),
    )
    list(campaign.urls())  # every table of servers is read
    return campaign


def _benchmark_name(path: Path, name: str) -> str:
    known = available_benchmarks()
    if name not in known:
        raise ConfigError(
            f"{path}: [benchmarks.{name}]: no such benchmark{_meant_benchmark(name, known)}; configs/ "
            f"defines {', '.join(known)}"
        )
    return name


def _meant_benchmark(name: str, known: Iterable[str]) -> str:
    """TOML reads a dot as a table within a table, so that a name with one stands in quotation marks."""
    if cut := [one for one in known if one.startswith(f"{name}.")]:
        return f"; write [benchmarks.{toml_key(cut[0])}], as the name has a dot"
    return meant(name, known)


def toml_key(name: str) -> str:
    """``"llama3.1-8b"``: a name with a dot stands in quotation marks."""
    return f'"{name}"' if "." in name else name


def _benchmark(path: Path, name: str, fields: Any) -> BenchmarkPart:
    table = f"benchmarks.{toml_key(name)}"
    part = converted(str(path), fields, BenchmarkPart, table)
    own = {f"{table}.{scenario}": one.servers for scenario, one in part.scenarios.items()}
    for place, servers in {table: part.servers, **own}.items():
        converted(str(path), servers, Servers, f"{place}.servers")
    if not part.scenarios:
        raise ConfigError(f"{path}: [{table}] names no scenario; add a table such as [{table}.offline]")
    for scenario, of_scenario in part.scenarios.items():
        place = f"{path}: [{table}.{scenario}]"
        rate, latency = of_scenario.target_qps, of_scenario.target_latency
        if scenario.one_at_a_time and rate is not None:
            raise ConfigError(f"{place}: {scenario} has no target_qps; write target_latency, in ms")
        if not scenario.one_at_a_time and latency is not None:
            raise ConfigError(f"{place}: {scenario} has no target_latency; write target_qps")
        if isinstance(rate, str) and rate != SEARCH:
            raise ConfigError(f"{place}: target_qps is {rate!r}, expected a number or {SEARCH!r}")
        for value in (rate, latency):
            if isinstance(value, float) and not 0 < value < float("inf"):
                raise ConfigError(f"{place}: {scenario.rate_key} is {value}, expected a number above 0")
    return part
