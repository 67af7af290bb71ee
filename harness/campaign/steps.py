"""The steps of a campaign in the order that finds failure first, each with its command and its folder."""

import math
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec

from harness.campaign.campaign_file import SEARCH, BenchmarkPart, Campaign, ScenarioPart, Servers, toml_key
from harness.campaign.conf import RunConf, user_conf, with_rate
from harness.campaign.rehearsal import CONF, max_new_tokens, sample_file
from harness.campaign.searches import found_rate, search_folder
from harness.compliance.compliance_options import VerifyOptions
from harness.compliance.compliance_options import parse_options as compliance_options
from harness.compliance.registry import find_test, needed_tests
from harness.config.benchmark import Benchmark
from harness.config.official_data import downloaded, fetching
from harness.config.other_flags import flag_of
from harness.config.plans import ComplianceSettings, RunPlan
from harness.config.run_options import parse_options as run_options
from harness.config.run_plan import resolve_plan
from harness.config.scenario import Scenario
from harness.dataset.published import other_than_published
from harness.errors import ConfigError, DatasetError
from harness.files import ACCURACY_LOG, COMPLIANCE_RUN, CONFIG_DIR, USER_CONF
from harness.grading.decoding.output_decoder import BUILT_IN, open_decoder, tokenizer_beside
from harness.grading.evaluation.references import load_references
from harness.grading.graders.grader import LIVECODEBENCH
from harness.grading.graders.grader_sets import graders_of
from harness.grading.livecodebench.release import find_release, only_file
from harness.peak.peak_options import parse_options as peak_options

Kind = Literal["trial", "search", "performance", "accuracy", "score", "test", "build", "check"]

# With the key that they are in the TOML, and where; "" where it has none.
_OWN_FLAGS = {
    "--accuracy": "",
    "--api": "api of the servers",
    "--audit-config": "",
    "--backend": "backend of the servers",
    "--benchmark": "",
    "--dry-run": "",
    "--input-file": "performance, accuracy or compliance of the benchmark",
    "--output-dir": "results at the top",
    "--restart": "",
    "--results": "results at the top",
    "--resume": "",
    "--round": "round at the top",
    "--scenario": "",
    "--server-url": "url of the servers",
    "--user-conf": "user_conf of the benchmark",
    "--wait-for-servers": "wait of the servers",
}
_FILES = ("--ca-file", "--generation-config", "--mlperf-conf", "--tokenizer")  # flags with a path


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One command of a campaign."""

    name: str
    """such as gpt-oss-120b/offline/performance"""
    kind: Kind
    folder: Path
    """where its results are"""
    verb: str
    """of ./mlperf"""
    words: tuple[str, ...]
    """the flags behind it"""
    servers: Servers | None = None
    """those that it needs"""
    addresses_change: bool = False
    """whether they may have other addresses after a restart"""
    plan: RunPlan | None = None
    """of its run, or of the runs of a search, without what is only known from the servers"""
    conf: RunConf | None = None
    """of its run"""
    test: str = ""
    """the compliance test"""
    found_rate: bool = False
    """its target_qps is that of a search"""
    rate_known: bool = True
    """false until that search has found it"""

    @property
    def run_folder(self) -> Path:
        """Where its run is; a test has its verdict beside it."""
        return self.folder / COMPLIANCE_RUN if self.test else self.folder


class _Runs(msgspec.Struct, frozen=True, kw_only=True):
    """What the steps of one scenario have in common."""

    campaign: Campaign
    benchmark: Benchmark
    part: BenchmarkPart
    scenario: Scenario
    own: ScenarioPart
    servers: Servers
    addresses_change: bool

    @property
    def name(self) -> str:
        return f"{self.benchmark.name}/{self.scenario}"

    @property
    def results(self) -> Path:
        """As --results of the benchmark's runs."""
        return self.campaign.results / self.benchmark.name

    @property
    def folder(self) -> Path:
        return self.results / self.scenario

    @property
    def searched(self) -> bool:
        return self.own.target_qps == SEARCH and not self.campaign.rehearsal


def steps_of(campaign: Campaign) -> tuple[Step, ...]:
    """All steps, also those whose files are missing. Raises ConfigError; writes nothing."""
    steps: list[Step] = []
    for name, (benchmark, part) in campaign.benchmarks.items():
        scenarios = [
            _Runs(
                campaign=campaign,
                benchmark=benchmark,
                part=part,
                scenario=scenario,
                own=own,
                servers=campaign.scenario_servers(name, scenario),
                addresses_change=campaign.addresses_change(name, scenario),
            )
            for scenario, own in part.scenarios.items()
        ]
        for at, runs in enumerate(scenarios):
            with _flags_named(runs):
                if not campaign.rehearsal and runs.servers not in [one.servers for one in scenarios[:at]]:
                    steps.append(_trial(runs))
                steps += _of_scenario(runs)
    for step in steps:
        if step.conf is not None and step.plan is not None:
            step.conf.settings(step.plan)  # it can be read
    return (*steps, *_builds(campaign), _check(campaign))


def dataset_of(campaign: Campaign, benchmark: Benchmark, role: str) -> Path:
    """The dataset of a role: that of the TOML, or the one of the download. A rehearsal has samples."""
    part = campaign.benchmarks[benchmark.name][1]
    if campaign.rehearsal:
        sample = sample_file(benchmark.name, role)
        if sample is None:
            raise ConfigError(f"{benchmark.name} has no sample dataset for {role}, so it cannot be rehearsed")
        return sample
    given: Path | None = getattr(part, role)
    if given is not None:
        return campaign.path(given)
    return downloaded(benchmark.datasets[role].file, campaign.file.parent)


def missing_files(campaign: Campaign) -> Iterator[str]:
    """The files that the steps need and that are not there, each with its remedy."""
    for name, (benchmark, part) in campaign.benchmarks.items():
        remedy, table = fetching(name), f"benchmarks.{toml_key(name)}"
        paths = {role: dataset_of(campaign, benchmark, role) for role in _roles(campaign, benchmark)}
        missing = {role: path for role, path in paths.items() if not path.is_file()}
        if absent := [role for role in missing if getattr(part, role) is None]:
            files = ", ".join(dict.fromkeys(str(missing[role]) for role in absent))
            own = ", ".join(f"{role} = FILE" for role in absent)
            yield f"{name} lacks {files}: run {remedy}, or write into [{table}]: {own}"
        for role in sorted(missing.keys() - absent):
            yield f"[{table}] {role}: no such file {missing[role]}; the official one: {remedy}"
        for given in (part.user_conf, part.lcb_data):
            if given is not None and not campaign.path(given).exists():
                yield f"[{table}]: no such file {campaign.path(given)}"
        if LIVECODEBENCH in graders_of(name).by_kind and not campaign.rehearsal:
            yield from _missing_programs(campaign, benchmark)
        try:
            open_decoder(benchmark, _tokenizer(campaign, benchmark), max_new_tokens=1)
        except ConfigError as error:
            yield f"no tokenizer for the score of {name}: {error}; in this file that is tokenizer = FOLDER"


def _missing_programs(campaign: Campaign, benchmark: Benchmark) -> Iterator[str]:
    """What keeps the score from testing programs."""
    given, rule = campaign.benchmarks[benchmark.name][1].lcb_data, benchmark.datasets["accuracy"]
    dataset = dataset_of(campaign, benchmark, "accuracy")
    release = find_release(dataset) if given is None else campaign.path(given)
    missing = (
        f"no tests of LiveCodeBench for {benchmark.name}: run datasets/download.sh --benchmark "
        f"{benchmark.name} --what livecodebench, or write lcb_data = FOLDER"
    )
    if release is not None:
        try:
            only_file(release, rule.release_file)
            return
        except DatasetError as error:
            missing = f"{error}; in this file that is lcb_data = FILE"
    if _has_programs(dataset, benchmark):
        yield missing


def _has_programs(dataset: Path, benchmark: Benchmark) -> bool:
    """Whether programs are among the answers; also where the dataset cannot be read, or is not there yet."""
    try:
        return any(row.kind == LIVECODEBENCH for row in load_references(dataset, benchmark))
    except DatasetError:
        return True


def _tokenizer(campaign: Campaign, benchmark: Benchmark) -> str | None:
    """The evaluator's `--tokenizer`; None: what it finds itself."""
    given = None if campaign.rehearsal else campaign.benchmarks[benchmark.name][1].tokenizer
    if given is None:
        return tokenizer_beside(dataset_of(campaign, benchmark, "accuracy"), benchmark)
    return _in_folder(campaign, "--tokenizer", given)


def other_files(campaign: Campaign) -> Iterator[str]:
    """The datasets that are not the published ones, as far as their checksums are known. Raises OSError."""
    if campaign.rehearsal:
        return
    yield from dict.fromkeys(_other_files(campaign))  # performance and accuracy may read one file


def _other_files(campaign: Campaign) -> Iterator[str]:
    for name, (benchmark, _) in campaign.benchmarks.items():
        for role in _roles(campaign, benchmark):
            path = dataset_of(campaign, benchmark, role)
            rule = benchmark.datasets[role]
            if path.is_file() and (found := other_than_published(name, rule, path, campaign.digests.of)):
                yield found


def _roles(campaign: Campaign, benchmark: Benchmark) -> Iterator[str]:
    """The datasets that the steps read: without compliance tests not those that only tests have."""
    return (
        role for role in benchmark.datasets if _is_closed(campaign) or role in ("performance", "accuracy")
    )


def _is_closed(campaign: Campaign) -> bool:
    """Whether compliance tests are among the steps."""
    return campaign.info.division == "closed"


@contextmanager
def _flags_named(runs: _Runs) -> Iterator[None]:
    """Name where a wrong flag comes from, also after the line of a program that does not take it."""
    try:
        yield
    except ConfigError as error:
        if not str(error).startswith("--"):
            raise
        raise ConfigError(f"{runs.campaign.file}: {runs.name}: {error}") from error
    except SystemExit as end:
        programs = "run, peak (target_qps is searched) and comply" if runs.searched else "run and comply"
        table = f"benchmarks.{toml_key(runs.benchmark.name)}"
        raise ConfigError(
            f"{runs.campaign.file}: flags of [{table}] or [{table}.{runs.scenario}] must be of {programs}: "
            "change the one above"
        ) from end


def _of_scenario(runs: _Runs) -> Iterator[Step]:
    if runs.searched:
        yield _search(runs)
    yield _performance(runs)
    yield _accuracy(runs)
    yield _score(runs)
    if _is_closed(runs.campaign):
        yield from (_test(runs, name) for name in needed_tests(runs.benchmark))


def _trial(runs: _Runs) -> Step:
    """A short Offline run: it finds servers and answers that do not work before a run of hours does."""
    trial = runs.campaign.folder / "trial" / runs.name  # each server command has its own
    conf = user_conf(CONF)
    words = _run_words(runs, "performance", conf, Scenario.OFFLINE, trial)
    return _run(runs, "trial", trial / Scenario.OFFLINE / "performance", words, conf)


def _search(runs: _Runs) -> Step:
    conf = user_conf(_base_conf(runs))
    words = _run_words(runs, "performance", conf)
    peak_options(["search", *words])  # ends the program on a flag that only runs have
    return _run(runs, "search", search_folder(runs.folder), words, conf, verb="peak")


def _performance(runs: _Runs) -> Step:
    conf = _conf(runs)
    words = (*_run_words(runs, "performance", conf), *_official(runs.campaign))
    if not runs.campaign.rehearsal:
        words += ("--stop-when-lost",)
    return _run(runs, "performance", runs.folder / "performance", words, conf, found_rate=runs.searched)


def _accuracy(runs: _Runs) -> Step:
    conf = _conf(runs)
    words = (*_run_words(runs, "accuracy", conf), "--accuracy", *_official(runs.campaign))
    return _run(runs, "accuracy", runs.folder / "accuracy", words, conf)


def _run(
    runs: _Runs,
    kind: Kind,
    folder: Path,
    words: tuple[str, ...],
    conf: RunConf,
    *,
    verb: str = "run",
    plan: RunPlan | None = None,
    test: str = "",
    found_rate: bool = False,
) -> Step:
    """A step that asks servers; ``plan`` None: that of a run with these words."""
    return Step(
        name=f"{runs.name}/{test or kind}",
        kind=kind,
        folder=folder,
        verb=verb,
        words=words,
        servers=runs.servers,
        addresses_change=runs.addresses_change,
        plan=plan or resolve_plan(replace(run_options(list(words)), user_conf=conf.base)),
        conf=conf,
        test=test,
        found_rate=found_rate,
        # Before a search has found one, the file has a rate that no run will have.
        rate_known=not runs.searched or conf.path != conf.base,
    )


def _score(runs: _Runs) -> Step:
    words: list[str | Path] = [
        "--benchmark",
        runs.benchmark.name,
        *_round(runs.campaign),
        "--mlperf-log",
        runs.folder / "accuracy" / ACCURACY_LOG,
        "--reference-data",
        dataset_of(runs.campaign, runs.benchmark, "accuracy"),
    ]
    if (tokenizer := _tokenizer(runs.campaign, runs.benchmark)) is not None:
        words += ["--tokenizer", tokenizer]
    if runs.part.lcb_data is not None and not runs.campaign.rehearsal:
        words += ["--lcb-data", runs.campaign.path(runs.part.lcb_data)]
    return Step(
        name=f"{runs.name}/score",
        kind="score",
        folder=runs.folder / "accuracy",
        verb="score",
        words=tuple(map(str, words)),
    )


def _test(runs: _Runs, name: str) -> Step:
    test = find_test(runs.benchmark, name)
    role = next(role for role, rule in runs.benchmark.datasets.items() if rule == test.dataset)
    conf = _conf(runs)
    words = ("--test", name, *_run_words(runs, role, conf))
    if runs.campaign.rehearsal:
        words += ("--rehearsal",)
    options = compliance_options(list(words))
    assert not isinstance(options, VerifyOptions)
    audit = ComplianceSettings(
        test=name,
        dataset=test.dataset,
        settings=dict(test.audit),
        text="",
        official=not runs.campaign.rehearsal,
    )
    file = dataset_of(runs.campaign, runs.benchmark, role)
    plan = resolve_plan(replace(options.run, input_file=file, user_conf=conf.base), audit)
    return _run(runs, "test", runs.folder / name, words, conf, verb="comply", plan=plan, test=name)


def _builds(campaign: Campaign) -> Iterator[Step]:
    """One build of all benchmarks, or of each: --scenario is for all benchmarks of a build."""
    scenarios = {name: tuple(part.scenarios) for name, (_, part) in campaign.benchmarks.items()}
    if len(set(scenarios.values())) == 1:
        yield _build(campaign, "build", tuple(scenarios), next(iter(scenarios.values())))
        return
    for name, own in scenarios.items():
        yield _build(campaign, f"{name}/build", (name,), own)


def _build(
    campaign: Campaign, name: str, benchmarks: tuple[str, ...], scenarios: tuple[Scenario, ...]
) -> Step:
    words: list[str | Path] = ["build", "--submission", campaign.file, *_round(campaign)]
    words += ["--results", campaign.results, "--output", campaign.output]
    words.append("--servers-moved")  # where they may not, the campaign has refused to run: see origins.py
    for benchmark in benchmarks:
        words += ["--benchmark", benchmark]
    for scenario in scenarios:
        words += ["--scenario", scenario]
    if campaign.rehearsal:
        words.append("--rehearsal")
    return Step(
        name=name,
        kind="build",
        folder=campaign.output,
        verb="submit",
        words=tuple(map(str, words)),
    )


def _check(campaign: Campaign) -> Step:
    return Step(
        name="check",
        kind="check",
        folder=campaign.output,
        verb="submit",
        words=("check", str(campaign.output), *_round(campaign)),
    )


def _run_words(
    runs: _Runs, role: str, conf: RunConf, scenario: Scenario | None = None, results: Path | None = None
) -> tuple[str, ...]:
    """The flags of a run, whose folder of runs is the benchmark's unless another is given."""
    servers = runs.servers
    words: list[str | Path] = ["--benchmark", runs.benchmark.name, *_round(runs.campaign)]
    words += ["--scenario", scenario or runs.scenario]
    words += ["--input-file", dataset_of(runs.campaign, runs.benchmark, role)]
    words += ["--user-conf", conf.path, "--output-dir", results or runs.results]
    if servers.backend is not None:
        words += ["--backend", servers.backend]
    if servers.api is not None:
        words += ["--api", servers.api]
    for url in servers.url:
        of_file = url.startswith("@")
        words += ["--server-url", f"@{runs.campaign.path(Path(url[1:]))}" if of_file else url]
    if runs.campaign.rehearsal:
        return (*map(str, words), "--max-new-tokens", str(max_new_tokens(runs.benchmark.name)))
    flags = (*_flag_words(runs, runs.part.flags), *_flag_words(runs, runs.own.flags))
    if own := sorted(_OWN_FLAGS.keys() & set(map(flag_of, flags))):
        key = _OWN_FLAGS[own[0]]
        raise ConfigError(
            f"{runs.campaign.file}: flags of {runs.name}: {own[0]} is the campaign's own; remove it"
            f"{key and f', and write {key}'}"
        )
    if (given := runs.part.tokenizer) is not None and not _names_tokenizer(runs.benchmark, flags):
        words += ["--tokenizer", _in_folder(runs.campaign, "--tokenizer", given)]
    return (*map(str, words), "--wait-for-servers", str(servers.wait), *_with_paths(runs.campaign, flags))


def _names_tokenizer(benchmark: Benchmark, flags: Sequence[str]) -> bool:
    """Whether a run whose prompts or answers are text knows its tokenizer without that of the score."""
    return benchmark.tokenizer == BUILT_IN or any(flag.partition("=")[0] == "--tokenizer" for flag in flags)


def _flag_words(runs: _Runs, flags: Sequence[str]) -> Sequence[str]:
    try:
        return shlex.split(flags) if isinstance(flags, str) else flags
    except ValueError as error:
        raise ConfigError(f"{runs.campaign.file}: flags of {runs.name}: {error}: {flags}") from None


def _with_paths(campaign: Campaign, flags: Sequence[str]) -> Iterator[str]:
    """The flags with files in the folder of the TOML, so that they hold in every folder."""
    before = ""
    for word in flags:
        name, equals, value = word.partition("=")
        if before in _FILES:
            yield _in_folder(campaign, before, word)
            before = ""
            continue
        before = name.replace("_", "-")
        if equals and before in _FILES:
            yield f"{name}={_in_folder(campaign, before, value)}"
            before = ""
        else:
            yield word


def _in_folder(campaign: Campaign, flag: str, value: str) -> str:
    """A file in the folder of the TOML. A tokenizer may be a name instead."""
    path = campaign.path(Path(value))
    return value if flag == "--tokenizer" and not path.exists() else str(path)


def _official(campaign: Campaign) -> tuple[str, ...]:
    return ("--official",) if campaign.strict else ()


def _round(campaign: Campaign) -> tuple[str, ...]:
    return () if campaign.info.round is None else ("--round", campaign.info.round)


def _base_conf(runs: _Runs) -> Path:
    if runs.campaign.rehearsal:
        return CONF
    given = runs.part.user_conf
    return CONFIG_DIR / USER_CONF if given is None else runs.campaign.path(given)


def _conf(runs: _Runs) -> RunConf:
    """The conf file of a scenario's runs."""
    base = _base_conf(runs)
    rate = runs.own.target_latency if runs.scenario.one_at_a_time else runs.own.target_qps
    if rate == SEARCH:
        rate = None
        with suppress(ConfigError):  # what is damaged is named by the search's own step
            rate = found_rate(search_folder(runs.folder), runs.scenario)
    if runs.campaign.rehearsal or rate is None:
        return user_conf(base)
    assert isinstance(rate, float) and math.isfinite(rate)
    path = runs.campaign.folder / "conf" / runs.benchmark.name / f"{runs.scenario}.conf"
    return with_rate(base, path, runs.benchmark.model_key(runs.scenario), runs.scenario, rate)
