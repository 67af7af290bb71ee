"""Worker process: client, journal, retries."""
