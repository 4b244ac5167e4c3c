"""What benchmarks write: one module a kind of file, told apart by content."""
