"""Measurements for find_peak.py: requests in flight without LoadGen, and probes with it."""
