"""The submission folder: made from runs, and checked before the official checker sees it."""
