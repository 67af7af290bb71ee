"""Batches of plain prompts: prompts in, token ids out, their text, and its METEOR and BERTScore."""
