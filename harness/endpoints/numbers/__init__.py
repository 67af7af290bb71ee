"""A point's numbers in the definitions of MLPerf Endpoints, from events.jsonl of any client."""
