"""Rows of a dataset through the client without LoadGen."""
