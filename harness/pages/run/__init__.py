"""The page of one run: its sections, charts and tables."""
