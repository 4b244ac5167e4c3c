"""What happens when requests come: block pool, prefix cache, the engines' scheduling rules, the clock."""
