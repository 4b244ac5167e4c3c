"""Engines' logs: which lines matter, and what they say."""
