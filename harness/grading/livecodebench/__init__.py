"""LiveCodeBench: its problems in an index, solutions tried in a sandbox, outputs compared outside of it."""
