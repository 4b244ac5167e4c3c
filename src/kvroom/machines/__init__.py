"""What serves it: devices, their memory, links and tiers."""
