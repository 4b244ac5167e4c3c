"""When replicas are started and let go: what an autoscaler measures, and the rules it goes by."""
