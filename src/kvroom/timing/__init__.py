"""What bytes cost: the traffic of a step."""
