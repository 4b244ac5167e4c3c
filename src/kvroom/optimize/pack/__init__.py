"""Several models on one node: cards, shares of memory in the order of starting, sleep, and who slows whom."""
