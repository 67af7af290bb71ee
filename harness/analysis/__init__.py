"""Figures of runs: what their files say, statistics, verdict, comparisons. Nothing here prints or draws."""
