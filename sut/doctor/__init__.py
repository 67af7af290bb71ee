"""What could cost a run, found on this node before hours are spent."""
