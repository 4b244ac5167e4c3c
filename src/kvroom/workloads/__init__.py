"""Who comes: requests, the traces that recorded them, and the rules that make them up."""
