"""Sessions of agents: how many a deployment holds, where it breaks and why, and what each change is worth."""
