"""Tables of outputs: every row of a dataset with its answer, as run_eval.py writes them."""
