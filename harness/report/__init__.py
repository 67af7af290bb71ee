"""The end of a run: statistics, warnings, verdict, and the texts for people."""
