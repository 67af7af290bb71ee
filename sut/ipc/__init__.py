"""What processes share: messages, counters, rendered requests."""
