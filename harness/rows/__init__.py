"""run_eval.py: every row of a dataset with its answer, without LoadGen."""
