"""HTTP client of the request path."""
