"""What time a step takes: the work, the clock, the load, the bands."""
