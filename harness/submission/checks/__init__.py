"""Checks of a submission tree, a module per subject."""
