"""What happens when requests come: caches, schedulers and the clock."""
