"""Plans, data, records and judgements of runs; has no access to servers or to LoadGen."""

from harness import possessive

possessive.mend()
