"""Steady state of a point (rules, section 4.4): super-passes, plateaus, verdict, window, and its numbers."""
