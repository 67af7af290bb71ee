"""``find_peak.py search``: the highest rate that passes; schedule, replay, probes, policy, result."""
