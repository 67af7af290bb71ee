"""Inference servers: facts, preflight, health, the embedded engine."""
