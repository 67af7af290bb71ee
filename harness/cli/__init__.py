"""Command line: one edge for all programs, signals, streams, the flags of a run."""
