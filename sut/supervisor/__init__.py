"""Supervisor: starts and monitors the processes, ends a run."""
