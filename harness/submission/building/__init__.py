"""Building a submission: from the folders of runs to a tree."""
