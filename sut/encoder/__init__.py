"""Text of finished answers to token ids, in a process beside each worker: the worker never waits for it."""
