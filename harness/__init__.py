"""Plans, data, records and judgements of runs; has no access to servers or to LoadGen."""
