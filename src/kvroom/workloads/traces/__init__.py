"""Recorded requests: one reader a format, told apart by content."""
