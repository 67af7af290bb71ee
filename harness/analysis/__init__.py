"""Figures of runs, from their files: statistics, verdict, warnings, comparisons. Nothing prints or draws."""
