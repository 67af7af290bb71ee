"""Sandbox for model-written programs."""
