"""Answer extraction and comparison, a module per dataset."""
