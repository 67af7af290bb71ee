"""The command ``run_endpoints.py run``: the plan, every point with its accuracy run, the tree, its check.

Repeating it continues: a point that is complete stays, and one that was cut off is run again. The page is
written after each point.
"""

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness.cli.signals import InterruptedRun, interruptible, require_no_signal, signals_kept
from harness.config.plans import ClientPlan
from harness.config.protocol import prompts_of
from harness.config.scenario import Scenario
from harness.dataset.samples import SampleSet, load_samples
from harness.dataset.table import open_table
from harness.dataset.token_columns import COLUMNS
from harness.defects import Defects
from harness.endpoints.checks.check_command import finding_lines, has_errors
from harness.endpoints.checks.tree_check import check_tree
from harness.endpoints.curve import Curve, Point
from harness.endpoints.endpoints_options import RehearsalOptions
from harness.endpoints.planning.curve_plan import known_c_max, plan_rehearsal, with_enough_passes
from harness.endpoints.planning.expected import expected_times
from harness.endpoints.planning.plan_console import plan_lines
from harness.endpoints.planning.shortfalls import plan_shortfalls
from harness.endpoints.rehearsal.finish_point import (
    PointNumbers,
    finish_point,
    finished_point,
    unfinished_point,
)
from harness.endpoints.rehearsal.rehearsal_console import AccuracyConsole, RehearsalConsole
from harness.endpoints.rehearsal_record import Rehearsal, read_rehearsal, write_rehearsal
from harness.endpoints.run_folder import NOT_A_RESULT_FILE, PAGE, RUNS, TREE
from harness.endpoints.tree.build_command import summary
from harness.endpoints.tree.build_tree import build_tree
from harness.endpoints.tree.system_file import SystemFile, read_system
from harness.endpoints.view.endpoints_page import write_endpoints_page
from harness.errors import (
    EXIT_INVALID,
    EXIT_THRESHOLD,
    EXIT_VALID,
    ConfigError,
    HarnessError,
    RunError,
    machine_failure,
)
from harness.files import JOURNAL_DIR, atomic_write, sha256_of
from harness.grading.decoding.output_decoder import tokenizer_file
from harness.grading.decoding.text_tokenizer import text_tokenizer
from harness.peak.ladder.ladder_plan import ladder_client, ladder_folder
from harness.peak.ladder.steps import NOT_A_RESULT
from harness.record.journal import failure_reasons
from harness.record.output_dir import (
    WRITE,
    accessing,
    aside_of,
    check_free,
    free_reserve,
    locked,
    move_aside_existing,
)
from harness.record.repeated import FirstLine, run_of
from harness.record.settled import ranks_of
from harness.report.run_console import DRY_RUN, api_lines, served_by, server_lines
from harness.text import labelled
from sut.drive import Serving, ask_servers, serving_urls
from sut.endpoints.accuracy import AccuracyPlan, plan_accuracy, run_accuracy
from sut.endpoints.c_max import find_c_max, measured_rates
from sut.endpoints.point import OpenServers, run_point
from sut.prepare import client_holds
from sut.servers.apis import asked_by

_MOST_SALT_TOKENS = 128
_CONTINUES = "repeat the command to continue there"
_EARLIER = "that of the rehearsal that continues"  # where C_max comes from


def rehearse(options: RehearsalOptions) -> int:
    """Rehearse a curve; the exit code. Raises HarnessError where nothing could be begun."""
    console = RehearsalConsole()
    inputs = _read(options)
    if options.target_cohort is None and inputs.system is not None:
        options = dataclasses.replace(options, target_cohort=inputs.system.target_cohort or None)
    with interruptible():
        earlier = None if options.restart else read_rehearsal(options.folder)
        for c_max, origin in _c_max(options, inputs, earlier):
            with serving_urls(inputs.client, inputs.samples, inputs.longest) as serving:
                walk = _planned(options, inputs, serving, c_max, console)
                if origin == _EARLIER and _why_anew(walk, earlier) is not None:
                    continue  # other servers have another C_max, and the forms that of the forms
                console.say(*_plan_lines(walk, earlier, origin))
                if options.dry_run:
                    check_free(options.folder)
                    console.say(DRY_RUN)
                    return EXIT_VALID
                with locked(options.folder):
                    _begin(walk, earlier)
                    return walk.to_the_end()
    raise AssertionError("what a ladder finds is taken")


def _unused(options: RehearsalOptions) -> Iterator[str]:
    """A warning for each flag of accuracy runs where there are none."""
    given = {
        "--reference-data": options.reference_data,
        "--lcb-data": options.lcb_data,
        "--allow-unsandboxed": options.allow_unsandboxed,
    }
    for flag, value in given.items() if options.accuracy_file is None else ():
        if value:
            yield f"{flag} has no effect: without --accuracy-file no accuracy run follows"


class _Inputs(msgspec.Struct, frozen=True):
    """Everything that is read and checked without a server."""

    client: ClientPlan
    samples: SampleSet
    accuracy: AccuracyPlan | None
    system: SystemFile | None
    tokenizer: Path | None
    """None: gpt-oss's, which is built in"""
    column: str
    """of the performance dataset, with the prompts"""

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with its answer, of either dataset; performance prompts are salted."""
        performance = self.samples.longest(self.client.parameters.max_new_tokens) + _MOST_SALT_TOKENS
        return max(performance, 0 if self.accuracy is None else self.accuracy.longest)


def _read(options: RehearsalOptions) -> _Inputs:
    options = dataclasses.replace(options, warnings=(*options.warnings, *_unused(options)))
    client = ladder_client(options, Scenario.SERVER, options.folder)
    if prompts_of(client.api) == "text":
        raise ConfigError(
            f"--api {client.api}: prompts of points are salted with ids; omit it, or name one that sends ids"
        )
    if client.parameters.max_new_tokens == 1:
        raise ConfigError(
            "max_new_tokens is 1, expected 2 or more: an answer with a single token has no TPOT, which every "
            "point needs; raise --max-new-tokens, or that of the generation config"
        )
    samples = load_samples(client.input_file, vocabulary_size=client.benchmark.vocabulary_size)
    accuracy = plan_accuracy(options)
    if options.tokenizer is not None:  # salts and counts of tokens are made with it
        text_tokenizer(client.benchmark, client.input_file, options.tokenizer)
    tokenizer = tokenizer_file(client.benchmark, client.input_file, options.tokenizer)
    system = read_system(options.system) if options.system else None
    column = open_table(client.input_file).first_column(COLUMNS)
    return _Inputs(client, samples, accuracy, system, tokenizer, column)


def _c_max(
    options: RehearsalOptions, inputs: _Inputs, earlier: Rehearsal | None
) -> Iterator[tuple[int, str]]:
    """C_max, and how it was found where it was not given; the next one where the earlier one's does not hold.

    Raises ConfigError and RunError.
    """
    if (known := known_c_max(options)) is not None:
        yield known, ""
        return
    if earlier is not None:
        yield earlier.curve.c_max, _EARLIER
    if options.dry_run:
        raise ConfigError("--c-max is not given, and a dry run sends nothing to find it; give it")
    folder = ladder_folder(options.results, Scenario.SERVER)  # ``./mlperf ladder`` writes there, too
    yield find_c_max(inputs.client, folder, most=len(inputs.samples) - 1)


def _planned(
    options: RehearsalOptions, inputs: _Inputs, serving: Serving, c_max: int, console: RehearsalConsole
) -> "_Walk":
    """Ask the servers and plan the curve. Raises ConfigError and ServerError."""
    client, accuracy = inputs.client, inputs.accuracy
    urls, death = serving
    servers = ask_servers(client, urls)
    curve = plan_rehearsal(
        options,
        samples=len(inputs.samples),
        accuracy_samples=0 if accuracy is None else len(accuracy.samples),
        c_max=c_max,
        replicas=sum(map(ranks_of, servers.found)),
    )
    if accuracy is not None and curve.accuracy_samples < len(accuracy.samples):
        accuracy = accuracy.first(curve.accuracy_samples)
    if accuracy is not None:
        accuracy = accuracy.held(client_holds(client, servers.found))
    samples = inputs.samples.part(0, curve.samples)
    first = servers.found[0]
    rehearsal = Rehearsal(
        curve=curve,
        input_file=str(client.input_file),
        dataset_sha256=samples.sha256,
        accuracy_file=None if accuracy is None else str(options.accuracy_file),
        accuracy_sha256=None if accuracy is None else accuracy.samples.sha256,
        tokenizer_sha256=None if inputs.tokenizer is None else sha256_of(inputs.tokenizer),
        parameters=client.parameters,
        engine=first.engine,
        version=first.version,
        model=first.model,
        started=datetime.now(UTC),
    )
    opened = OpenServers(client, samples, servers, death, inputs.tokenizer)
    return _Walk(options, rehearsal, replace(inputs, accuracy=accuracy), opened, serving, console)


def _plan_lines(walk: "_Walk", earlier: Rehearsal | None, origin: str) -> Iterator[str]:
    client, opened, curve = walk.inputs.client, walk.opened, walk.rehearsal.curve
    if _holds_something(walk.options.folder):
        yield _first_line(walk, earlier)
    folder = ladder_folder(walk.options.results, Scenario.SERVER)
    rates = measured_rates(folder, client.parameters, opened.servers.found)
    yield from plan_lines(curve, expected_times(curve, rates), origin)
    yield from labelled("api", api_lines(asked_by(opened.servers.found, client.api)))
    yield from labelled("server", server_lines(opened.servers.found, served_by))
    yield f"output    {walk.options.folder}"
    yield from labelled("DEVIATION", client.deviations)
    yield from labelled("WARNING", (*client.warnings, *opened.servers.warnings))


def _first_line(walk: "_Walk", earlier: Rehearsal | None) -> str:
    """What the folder holds, and what happens to it."""
    options, words = walk.options, FirstLine(walk.options.dry_run)
    what = "what is there" if earlier is None else run_of(earlier.started).replace("the run", "the rehearsal")
    why = _why_anew(walk, earlier)
    if why is None:
        points = walk.rehearsal.curve.points
        done = sum(finished_point(walk.folder(point)) is not None for point in points)
        return words.continues(what, f"{done} of {len(points)} points are complete")
    return words.anew(why, what, aside_of(options.folder) or options.folder)


def _why_anew(walk: "_Walk", earlier: Rehearsal | None) -> str | None:
    """Why what the folder holds is not continued; None where it is."""
    if earlier is None:
        return "as asked for" if walk.options.restart else ""
    return ", ".join(earlier.differences(walk.rehearsal)) or None


def _holds_something(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _begin(walk: "_Walk", earlier: Rehearsal | None) -> None:
    """Prepare the folder, and move aside what is not continued. Raises ConfigError."""
    folder = walk.options.folder
    lines = (f"This is a rehearsal and {NOT_A_RESULT}:", *plan_shortfalls(walk.rehearsal.curve))
    with accessing(folder, WRITE):
        if _holds_something(folder):
            if _why_anew(walk, earlier) is None:
                return
            move_aside_existing(folder)
            free_reserve(folder)
        write_rehearsal(folder, walk.rehearsal)
        with atomic_write(folder / NOT_A_RESULT_FILE) as file:
            file.write(("\n- ".join(lines) + "\n").encode())


class _Walk(msgspec.Struct):
    """A rehearsal that is planned: all its points, one after the other."""

    options: RehearsalOptions
    rehearsal: Rehearsal
    inputs: _Inputs
    opened: OpenServers
    serving: Serving
    console: RehearsalConsole
    failed: bool = False
    below: bool = False

    def folder(self, point: Point) -> Path:
        """The run folder of a point."""
        return self.options.folder / RUNS / point.name

    def to_the_end(self) -> int:
        """Run what is missing, then build and check the tree; the exit code."""
        for point in self.rehearsal.curve.points:
            try:
                self._point(point)
            except InterruptedRun as interruption:
                self._page()
                self.console.say(f"ended by {interruption} in {point.name}; {_CONTINUES}")
                raise
            except (HarnessError, OSError) as error:
                self._page()
                cause = machine_failure(error, self.folder(point)) if isinstance(error, OSError) else error
                raise type(cause)(f"{point.name}: {cause}; {_CONTINUES}") from error
            self._page()
        return self._tree()

    def _point(self, point: Point) -> None:
        """One point and its accuracy run, where they are missing. Raises HarnessError and InterruptedRun."""
        folder, curve = self.folder(point), self.rehearsal.curve
        numbers = finished_point(folder)
        if numbers is None:
            numbers = self._measured(point, curve, folder)
        self.console.point(numbers.run, numbers.summary, numbers.steady)
        self.failed |= bool(numbers.run.failures)
        accuracy = self.inputs.accuracy
        if point.accuracy and accuracy is not None:
            found = run_accuracy(accuracy, point, folder, self.serving, AccuracyConsole(point, self.console))
            self.below |= not (found.passed or curve.short)
            self.console.accuracy(point, found)

    def _measured(self, point: Point, curve: Curve, folder: Path) -> PointNumbers:
        run = unfinished_point(folder)
        if run is None:
            with signals_kept():  # at the end of a point they are ignored, and the next one follows
                run = run_point(curve, self._long_enough(point), self.opened, folder, self.console)
        require_no_signal(run.interrupted_by)
        if not run.complete:
            raise RunError("; ".join(run.errors) or "it did not come to its end")
        if not run.completed:  # no figure can be made of it, and the next point would end as it did
            raise RunError(f"no request was completed: {failure_reasons(folder / JOURNAL_DIR)}")
        inputs = self.inputs
        return finish_point(folder, run, inputs.tokenizer, inputs.column, self.console.counting)

    def _long_enough(self, point: Point) -> Point:
        """All requests of an Offline run are issued at once: how many follows from the rate at C_max."""
        curve = self.rehearsal.curve
        if point.offline != "dedicated" or curve.short:
            return point
        most = next(one for one in curve.points if one.concurrency == curve.c_max)
        measured = finished_point(self.folder(most))
        rate = None if measured is None else measured.summary.get("qps")
        return with_enough_passes(point, curve.samples, rate) if rate else point

    def _page(self) -> None:
        """Write the page; a rehearsal continues where that fails."""
        try:
            with Defects().cost(PAGE):
                write_endpoints_page(self.options.folder)
        except (HarnessError, OSError) as error:
            page = self.options.folder / PAGE
            cause = machine_failure(error, page) if isinstance(error, OSError) else error
            self.console.say(f"WARNING   the page was not written: {cause}")

    def _tree(self) -> int:
        """Build and check what would be submitted."""
        folder = self.options.folder
        tree = build_tree(
            [folder],
            self.inputs.system,
            folder / TREE,
            seed_sets=self.options.seed_sets,
            target_cohort=self.options.target_cohort,
        )
        self.console.say("", *summary(tree))
        found = check_tree(folder)
        self._page()
        self.console.say("", *finding_lines(found), f"page      {folder / PAGE}")
        if self.failed:
            return EXIT_INVALID
        return EXIT_THRESHOLD if self.below or has_errors(found) else EXIT_VALID
