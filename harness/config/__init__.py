"""Benchmark definitions, LoadGen's settings, the plan of a run, rule checks."""
