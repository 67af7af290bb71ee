"""The plan of run_eval.py: the accuracy run's parameters for some rows of a dataset, and where they go."""

import math
import re
from datetime import datetime
from pathlib import Path

import msgspec

from harness.config.benchmark import load_benchmark
from harness.config.client_plan import resolve_client
from harness.config.deadlines import resolve_policy
from harness.config.generation import official_parameters, resolve_generation
from harness.config.official_data import official_dataset
from harness.config.plans import ClientPlan
from harness.config.rule_checks import round_deviations
from harness.dataset.extended_table import check_suffix
from harness.errors import ConfigError
from harness.files import PARQUET_SUFFIXES, PICKLE_SUFFIXES
from harness.rows.attempts import EvalSettings, read_settings
from harness.rows.eval_options import EvalOptions

_FOLDER = "run_eval"  # below --results
_RUN = ".run"  # suffix of the folder beside an output file


class EvalPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that are answered once, in order, and the file of their answers."""

    client: ClientPlan
    """its log folder exists until the file is complete: settings, and a journal for each attempt"""
    skip: int = 0
    """rows that are left out before the first"""
    count: int | None = None
    """None: all rows after them"""
    output: Path
    """the file to write"""
    as_measured: bool = False
    """whether answers are streamed as those of a measurement are, and not as a flag says"""

    @property
    def folder(self) -> Path:
        """The folder beside the file."""
        return self.client.log_dir


def resolve_eval_plan(options: EvalOptions) -> EvalPlan:
    """Turn options into a plan. Raises ConfigError."""
    for flag, value, least in (
        ("--max-samples", options.max_samples, 1),
        ("--skip-samples", options.skip_samples, 0),
    ):
        if value is not None and value < least:
            raise ConfigError(f"{flag} is {value}, expected at least {least}")
    benchmark = load_benchmark(options.benchmark, options.round)
    official = official_parameters(benchmark, accuracy=True)
    generation = resolve_generation(options, official, timed=False)
    dataset = options.input_file or official_dataset(benchmark, benchmark.dataset(accuracy=True))
    output = (options.output_file or _default_output(options, dataset)).absolute()
    client = resolve_client(
        options,
        benchmark,
        dataset,
        generation.parameters,
        # A failure is a row like any other: none ends the run unless a flag says so.
        resolve_policy(options, streams=generation.parameters.stream),
        run_folder(output),
        deviations=(*round_deviations(benchmark), *generation.deviations),
        warnings=generation.warnings,
    )
    check_suffix(output, "--output")
    return EvalPlan(client=client, skip=options.skip_samples, count=options.max_samples, output=output)


def run_folder(output: Path) -> Path:
    """The folder beside an output file until it is complete."""
    return output.with_name(f"{output.name}{_RUN}")


def _default_output(options: EvalOptions, source: Path) -> Path:
    """``run_eval/NAME_YYYYmmdd_HHMMSS`` in the folder of results, in the input's format, parquet for JSON.

    The newest file that an earlier run of the same input has not completed comes before a new one, but for
    those of more or other rows: a look at a few moves no answers of all aside. Where there are these alone,
    --resume takes the newest, which it then refuses by what differs.
    """
    folder = options.results / _FOLDER
    suffix = PICKLE_SUFFIXES[0] if source.suffix.lower() in PICKLE_SUFFIXES else PARQUET_SUFFIXES[0]
    name = re.compile(rf"{re.escape(source.stem)}_[0-9]{{8}}_[0-9]{{6}}{re.escape(suffix + _RUN)}")
    begun = () if options.restart else sorted(folder.glob(f"*{_RUN}"), reverse=True)
    ours = [path for path in begun if name.fullmatch(path.name)]
    same = (path for path in ours if _may_continue(read_settings(path), options))
    if path := next(same, ours[0] if ours and options.resume else None):
        return path.with_suffix("")
    return folder / f"{source.stem}_{datetime.now():%Y%m%d_%H%M%S}{suffix}"


def _may_continue(earlier: EvalSettings | None, options: EvalOptions) -> bool:
    most = options.max_samples or math.inf
    return earlier is None or (earlier.skip == options.skip_samples and earlier.samples <= most)
