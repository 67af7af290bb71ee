"""The plan of a curve: the rules of a cohort, regions, points, seeds, expected hours."""
