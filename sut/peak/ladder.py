"""The ladder: fixed numbers of requests in flight, one after the other."""

from dataclasses import fields

from harness.config.options import RunOptions
from harness.config.plan import resolve_plan
from harness.errors import ConfigError
from harness.peak.options import LadderOptions


def climb(options: LadderOptions) -> int:
    """Measure every step; returns the exit code."""
    names = {field.name for field in fields(RunOptions)}
    resolve_plan(RunOptions(**{f.name: getattr(options, f.name) for f in fields(options) if f.name in names}))
    raise ConfigError(f"the ladder over {options.input_file} cannot be climbed yet")
