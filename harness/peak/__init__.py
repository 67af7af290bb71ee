"""find_peak.py: its commands, and fixed concurrency without LoadGen."""
