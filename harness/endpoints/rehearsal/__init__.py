"""A rehearsal in progress: what follows the last request of a point, and what the terminal shows."""
