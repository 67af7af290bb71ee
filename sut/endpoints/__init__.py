"""MLPerf Endpoints, rehearsed: the points of a curve, run against servers."""
