"""The progress of a run and of its grading: a line on the terminal, files, `report.py watch`."""
