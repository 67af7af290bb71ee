"""Communication between processes: messages, counters, rendered requests."""
