"""WHAT happens when requests come: block pool, prefix cache and the engine's own scheduling rules."""
