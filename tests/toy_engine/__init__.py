"""A small engine that nobody runs: what it takes to add one."""
