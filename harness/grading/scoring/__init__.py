"""What grading results in: the grade of one output, and the score of all."""
