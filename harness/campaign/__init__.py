"""All runs of a submission from one file: what is missing is done, in the order that finds failure first."""
