"""The answer: a Plan, its figures, and where each comes from."""
