"""LoadGen's process: the only importer of LoadGen."""
