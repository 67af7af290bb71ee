"""find_peak.py: its ladder of fixed concurrency, and its search for the highest rate."""
