"""Supervisor: starts the processes, watches them, ends a run."""
