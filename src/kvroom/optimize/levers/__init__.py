"""Which change moves the number: each lever, ranked."""
