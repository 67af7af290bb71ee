"""The only importer of LoadGen."""
