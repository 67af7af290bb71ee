"""Compliance tests: their audit settings, their requirements on the logs, and the verified folder."""
