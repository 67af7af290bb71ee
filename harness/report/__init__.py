"""What people see of runs: report.py with its pages and tables, and the texts of a run on the terminal.

It reads what analysis and grading found. The pages of other packages (searches, the evaluator's samples) are
made of the parts in ``html``.
"""
