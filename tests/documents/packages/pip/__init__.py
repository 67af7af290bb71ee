"""In place of pip."""
