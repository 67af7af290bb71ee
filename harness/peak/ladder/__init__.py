"""``find_peak.py ladder``: fixed numbers of requests in flight, without LoadGen. Not MLPerf results."""
