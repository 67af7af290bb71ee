"""The rules by which outputs are graded: one module for each kind of answer, and their registry."""
