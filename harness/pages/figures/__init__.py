"""Numbers of runs: their queries in columns, what happened when, distributions, differences of two runs."""
