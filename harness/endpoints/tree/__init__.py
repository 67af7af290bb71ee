"""The tree that would be submitted: its files from run folders and from a TOML of the system."""
