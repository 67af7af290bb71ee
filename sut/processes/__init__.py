"""Child processes of a run: their start and end, CPUs, and the limits of the machine."""
