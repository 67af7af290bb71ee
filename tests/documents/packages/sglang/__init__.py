"""In place of SGLang."""
