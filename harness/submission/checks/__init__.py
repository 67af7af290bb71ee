"""Checks of a submission tree, one module per subject."""
