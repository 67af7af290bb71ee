"""The embedded engine: a real model behind a real HTTP server that the harness starts and stops."""
