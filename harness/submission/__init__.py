"""The submission folder: built from runs, and checked like MLCommons's submission checker does."""
