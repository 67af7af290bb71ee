"""Verdicts on accuracy logs: official rules and strict ones side by side, model-written code in a sandbox."""
