"""What a router counts and knows, and the rules by which it chooses."""
