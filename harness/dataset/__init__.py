"""Dataset tables, their token rows, tokenizers."""
