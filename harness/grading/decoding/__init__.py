"""One output from its token ids to the text that graders read."""
