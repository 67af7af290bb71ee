"""MLPerf Endpoints, rehearsed: the plan of a curve, its numbers, the tree to submit, and checks of it."""
