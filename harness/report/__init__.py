"""What people see of runs: report.py with its pages and tables, and the texts of a run on the terminal.

It reads what analysis and grading found; neither imports it.
"""
