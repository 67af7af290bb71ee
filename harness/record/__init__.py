"""All that a run leaves: run.json, the journal, requests.parquet, the output folder."""
