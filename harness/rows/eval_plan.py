"""The plan of run_eval.py: the accuracy run's settings for some rows of a dataset, and where they go."""

from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path

import msgspec

from harness.config.run_options import RunOptions
from harness.config.run_plan import RunPlan, resolve_plan
from harness.config.scenario import Scenario
from harness.dataset.extended_table import check_suffix
from harness.errors import ConfigError
from harness.files import PARQUET_SUFFIXES, PICKLE_SUFFIXES
from harness.rows.eval_options import EvalOptions

_FOLDER = "run_eval"  # below --output-dir
_OWN = {"output_file", "num_samples", "skip_samples", "tokenizer"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalPlan:
    """``run`` has everything that an accuracy run in Offline has; its log folder is the journal's.

    ``count`` None: all rows behind the first ``skip``. ``output`` is the file to write.
    """

    run: RunPlan
    skip: int
    count: int | None
    output: Path
    tokenizer: str | None

    @property
    def folder(self) -> Path:
        """The folder that exists until the file is complete: settings, and a journal for each attempt."""
        return self.output.with_name(f"{self.output.name}.run")


def resolve_eval_plan(options: EvalOptions) -> EvalPlan:
    """Turn options into a plan. Raises ConfigError."""
    for flag, value, least in (
        ("--num-samples", options.num_samples, 1),
        ("--skip-samples", options.skip_samples, 0),
    ):
        if value is not None and value < least:
            raise ConfigError(f"{flag} is {value}, expected at least {least}")
    if options.resume and options.output_file is None:
        raise ConfigError("--resume needs --output-file, the file of the run to resume")
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    shared = {name: value for name, value in given.items() if name not in _OWN}
    run = resolve_plan(RunOptions(**shared, accuracy=True, scenario=Scenario.OFFLINE))
    if options.max_failures is None and not options.fail_fast:  # here a failure is a row like any other
        run = msgspec.structs.replace(run, policy=msgspec.structs.replace(run.policy, max_failures=None))
    output = (options.output_file or _default_output(options)).absolute()
    check_suffix(output, "--output-file")
    return EvalPlan(
        run=run,
        skip=options.skip_samples,
        count=options.num_samples,
        output=output,
        tokenizer=options.tokenizer,
    )


def _default_output(options: EvalOptions) -> Path:
    """``mlperf_results/run_eval/NAME_YYYYmmdd_HHMMSS`` in the format of the input, parquet for JSON."""
    source = options.input_file
    suffix = PICKLE_SUFFIXES[0] if source.suffix.lower() in PICKLE_SUFFIXES else PARQUET_SUFFIXES[0]
    return options.output_dir / _FOLDER / f"{source.stem}_{datetime.now():%Y%m%d_%H%M%S}{suffix}"
