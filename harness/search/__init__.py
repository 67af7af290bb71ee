"""The search for the highest rate that passes: schedule, replay, probes, policy, result."""
