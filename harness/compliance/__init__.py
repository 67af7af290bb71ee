"""Compliance tests: their audit settings, what they ask of the logs, and the verified folder."""
