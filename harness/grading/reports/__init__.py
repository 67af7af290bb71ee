"""What is printed and written about a scored log: scorecard, result file, tables, samples to look at."""
