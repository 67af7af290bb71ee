"""Pages that show runs: figures from the files of a run, one HTML file without external parts."""
