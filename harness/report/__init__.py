"""What people see of runs: report.py, the texts of run_mlperf.py on the terminal, progress."""
