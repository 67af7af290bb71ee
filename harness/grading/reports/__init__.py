"""Console, result file, tables and pages of a scored log."""
