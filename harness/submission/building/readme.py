"""The README of a scenario: what was run, and the commands that run it again.

Nothing in it names a machine, a user or a folder of the submitter: only the last part of a path remains, and
nothing of a URL.
"""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from harness.cli.door import LAUNCHER, verb_of
from harness.config.benchmark import Benchmark
from harness.config.scenario import Scenario
from harness.files import ACCURACY, ACCURACY_LOG, PERFORMANCE
from harness.loadgen_logs.summary_and_detail import LoadgenDetail
from harness.record.run_record import RunRecord
from harness.record.settled import WATERMARKS, ServerInfo
from harness.submission.building.source_code import WrittenSource
from harness.text import counted

_PROGRAMS = ("run_mlperf.py", "run_compliance.py")
_VERBS = tuple(verb_of(program) for program in _PROGRAMS)
_DATASETS = ("--input-file", "--dataset-path")  # run.json has the file of each run, named or by default
# These flags change no result: they name places of this machine, or what is shown of a run.
_PLACES = (
    "--server-url",
    "--dcgm-url",
    "--metrics-port",
    "--results",
    "--output-dir",
    "--output-log-dir",
    "--user-conf",
    "--ca-file",
)
_JSON = ("json_model_override_args", "preferred_sampling_params")  # settings that name no file
_LEFT_OUT = (*_PLACES, *_DATASETS, "--resume", "--no-report", "--log-level")
_SERVERS, _DATA, _HERE, _RESULTS = "$servers", "$data", "$here", "results"


class ScenarioReadme(msgspec.Struct, frozen=True):
    """The README of one scenario."""

    benchmark: Benchmark
    scenario: Scenario
    detail: LoadgenDetail
    """the performance run's"""
    records: Mapping[str, RunRecord]
    """by the run's folder; runs of another harness have none"""
    code: WrittenSource
    confs: Mapping[str, str]
    """the place of each run's user.conf, by the run's folder"""

    def text(self) -> str:
        """Result, software, commands and deviations."""
        lines = [f"# {self.benchmark.name}, {self.scenario.folder}", "", *self._result()]
        if (record := self.records.get(PERFORMANCE.as_posix())) is not None:
            lines += ["", "## Software and settings", "", *self._software(record)]
        if self.records:
            lines += ["", "## To repeat the runs", "", *self._repeat()]
            deviations = [
                f"- {name}: {without_places(deviation)}"
                for name, one in self.records.items()
                for deviation in one.deviations
            ]
            lines += ["", "## Deviations from the rules", "", *(deviations or ["None."])]
        return "\n".join(lines) + "\n"

    def _result(self) -> Iterator[str]:
        values, mean = self.detail.values, self.detail.mean_tokens
        yield f"Result of LoadGen {values.get('loadgen_version')}: {values.get('result_validity')}."
        if mean is not None:
            yield f"Mean output tokens per sample: {mean:.2f}."

    def _software(self, record: RunRecord) -> Iterator[str]:
        plan, settled, client, code = record.plan.client, record.settled, record.provenance, self.code
        folder, state = f"src/{code.folder}/", code.source.state
        if state is not None:
            yield f"- harness: commit {state}, {client.python}; its code is {folder}"
        else:
            recorded = "no commit" if client.git is None else f"commit {client.git}"
            yield f"- harness: the runs recorded {recorded}, {client.python}; {folder} is later code"
        if code.changed:
            yield f"- files of {folder} without a key that they had in the runs: {', '.join(code.changed)}"
        yield "- packages: " + _listed(client.packages)
        yield from self._servers(record.servers)
        parameters = msgspec.to_builtins(plan.parameters)
        yield "- generation: " + _listed({name: parameters[name] for name in parameters if name != "extra"})
        settings = {"worker processes": settled.placement.workers, "backend": plan.backend, "api": plan.api}
        yield "- client: " + _listed(settings | {"concurrency": settled.concurrency})

    def _servers(self, servers: Sequence[ServerInfo]) -> Iterator[str]:
        """Each kind of server once, with how many there are."""
        kinds: dict[tuple[str, ...], list[ServerInfo]] = defaultdict(list)
        for server in servers:
            names = ("engine", "version", "dp_size", "context_length")
            facts = {name: getattr(server, name) for name in names}
            lines = ["server: " + _listed(facts | {"model": model_name(server, self.benchmark)})]
            if server.settings:
                lines.append("server settings, as reported by the server: " + _listed(_settings(server)))
            kinds[tuple(lines)].append(server)
        for (first, *others), alike in kinds.items():
            count = number_of_servers(alike)
            yield f"- {first}" if count == 1 else f"- {count} x {first}"
            yield from (f"- {line}" for line in others)

    def _repeat(self) -> Iterator[str]:
        yield from ("The client, from this folder:", "", "```bash", "here=$PWD")
        yield f"cp -r ../../../../src/{self.code.folder} /tmp/harness && cd /tmp/harness && ./setup.sh"
        yield from ("```", "")
        servers = next(iter(self.records.values())).servers
        starts = filter(None, (server_start(server, self.benchmark) for server in servers))
        if commands := dict.fromkeys(starts):
            count = counted(number_of_servers(servers), "server")
            yield f"{count}. The command is derived from what a server reported, which"
            yield "may not be every option of its start:"
            yield from ("", "```bash", *commands, "```", "")
        yield "The datasets (docs/guide/datasets.md of the harness; checksums by sha256):"
        yield from ("", "| run | file | samples used | sha256 |", "|---|---|---|---|")
        for name, record in self.records.items():
            file, settled = file_name(str(record.plan.client.input_file)), record.settled
            yield f"| {name} | {file} | {settled.samples} | {settled.dataset_sha256} |"
        yield from ("", "Every run, in its order:", "", "```bash")
        yield "data=data                          # the folder of the datasets"
        if any(record.plan.client.backend != "embedded" for record in self.records.values()):
            yield "servers=http://localhost:30000     # the URLs of the servers, separated by commas"
        yield from dict.fromkeys(self._commands())
        yield "```"

    def _commands(self) -> Iterator[str]:
        for name, record in self.records.items():
            yield self._command(name, record)
            if name == ACCURACY.as_posix():
                folder = f"{_RESULTS}/{self.scenario}/accuracy"
                words = ["--benchmark", self.benchmark.name, "--mlperf-log", f"{folder}/{ACCURACY_LOG}"]
                if tokenizer := record.plan.client.tokenizer:
                    words += ["--tokenizer", file_name(tokenizer)]
                yield f"./mlperf score {shlex.join(words)} --reference-data {_dataset(record)}"

    def _command(self, name: str, record: RunRecord) -> str:
        """The command of a run with the published files in place of its own."""
        program, *words = record.provenance.command or ("",)
        program = file_name(program)
        if program == LAUNCHER.name and words and words[0] in _VERBS:
            start = f"./{program} {words.pop(0)}"
        elif program in _PROGRAMS:
            start = f".venv/bin/python {program}"
        else:
            return f"# {name}: its command cannot be shown"
        shown = [word for flag, value in _flags(words) for word in _shown(flag, value)]
        shown += self._datasets(record.provenance.command)
        if name in self.confs:
            shown += ["--user-conf", f'"{_HERE}/{self.confs[name]}"']
        if record.plan.client.backend != "embedded":
            shown += ["--server-url", f'"{_SERVERS}"']
        return " ".join([start, *shown, "--output-dir", _RESULTS])

    def _datasets(self, command: Sequence[str]) -> Iterator[str]:
        """Those of all runs of a command, which may have made several tests."""
        for one in self.records.values():
            if one.provenance.command == command:
                test = "" if one.plan.audit is None else f"{one.plan.audit.test}="
                yield from ("--input-file", f"{test}{_dataset(one)}")


def _dataset(record: RunRecord) -> str:
    """The dataset of a run in the folder of datasets, quoted for a shell."""
    return f'"{_DATA}/{file_name(str(record.plan.client.input_file))}"'


def _listed(fields: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)


def _settings(server: ServerInfo) -> dict[str, Any]:
    """Without the folders of paths."""
    return {
        name: file_name(value) if isinstance(value, str) and name not in _JSON else value
        for name, value in server.settings.items()
    }


def number_of_servers(urls: Sequence[ServerInfo]) -> int:
    """The servers at these URLs: data-parallel ranks that listen at a port each are one."""
    places = [url.listener for url in urls]
    ranks = Counter((place.of, place.rank) for place in places if place is not None)
    most: dict[int, int] = {}
    for (size, _), count in ranks.items():
        most[size] = max(most.get(size, 0), count)
    return places.count(None) + sum(most.values())


def server_start(server: ServerInfo, benchmark: Benchmark) -> str:
    """The command that starts a server of SGLang with the settings that it reported; empty for others."""
    if server.engine != "SGLang" or not server.settings:
        return ""
    words = ["python", "-m", "sglang.launch_server", "--model-path", model_name(server, benchmark)]
    for name, value in _settings(server).items():
        if value not in (False, "", None) and name not in WATERMARKS:
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    if server.context_length is not None:
        words += ["--context-length", str(server.context_length)]
    rust = "SGLANG_RUST_SERVER=1 " if "Rust" in (server.version or "") else ""
    return rust + shlex.join(words)


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each flag and its value, "" for none: ``--flag value`` or ``--flag=value``, with _ or - in the name."""
    for word, after in zip_longest(words, words[1:], fillvalue="--"):
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            yield flag.replace("_", "-"), value if equals or after.startswith("--") else after


def _shown(flag: str, value: str) -> Iterator[str]:
    """A flag and its value, quoted for a shell; of a path the last part."""
    if flag in _LEFT_OUT:
        return
    yield flag
    test, equals, file = value.rpartition("=")
    if flag == "--reference-data":
        yield f'{file_name(test) if test else ""}{equals}"{_DATA}/{file_name(file)}"'
    elif value:
        yield shlex.quote(f"{file_name(test) if test else ''}{equals}{file_name(file)}")


def model_name(server: ServerInfo, benchmark: Benchmark) -> str:
    """The benchmark's model by its full name, of any other the last part: the rest may be a folder."""
    name = server.model or ""
    cached = _CACHED.search(name)
    full = "/".join(cached.groups()) if cached else name
    return full if full == benchmark.model else file_name(full)


_CACHED = re.compile(r"/models--([^/]+?)--([^/]+)")  # a folder of Hugging Face's cache
_NAME = re.compile(r"[\w+-][\w .,+-]*")
_PLACE = re.compile(
    r"\w+://[^\s,;'\"()]*|(?<!\w)(?:~|\.{0,2}/)[^\s,;:'\"()]*|\w[\w.-]*/[\w./-]*[a-z]\.[a-z]+\b"
)


def file_name(path: str) -> str:
    """The last part of a path or URL; ``FILE`` where that is not a name, as in ``..`` and ``~user``."""
    last = path.rstrip("/").rpartition("/")[2]
    return last if _NAME.fullmatch(last) else "FILE"


def without_places(text: str) -> str:
    """The text with the name of a file in place of its path, and without folders and URLs."""
    return _PLACE.sub(lambda found: _file_in_text(found[0]), text)


def _file_in_text(place: str) -> str:
    last = file_name(place)
    return "URL" if "://" in place else last if "." in last else "FOLDER"
