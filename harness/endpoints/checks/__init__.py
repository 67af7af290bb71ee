"""Checks of an Endpoints tree or of run folders: MLCommons's, where installed, and stricter ones."""
