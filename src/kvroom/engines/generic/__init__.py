"""Engines without rules of their own: the arithmetic ceiling, and a share of the memory."""
