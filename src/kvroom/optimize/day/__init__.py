"""A day of requests by the hour: replicas, times and cost, from a sample of replicas and of loads."""
