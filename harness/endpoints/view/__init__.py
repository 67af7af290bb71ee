"""A measured curve, read from its files: its page, and two curves side by side."""
