"""find_peak.py: fixed concurrency without LoadGen, and the search for the highest rate that passes."""
