"""The evaluation of a complete log: references, grades, scores, and whether they meet the target."""
