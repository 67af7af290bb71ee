"""Fuzzing of whatever reads what others wrote: damaged copies of true inputs, and what must hold for each.

A short run is part of the tests; the long one is ``python -m tests.fuzz --seconds 600``. An input follows
from the target's name and its number alone, so a finding is repeated with ``--only TARGET --first NUMBER``.
"""
