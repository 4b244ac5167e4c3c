"""A running engine, asked and held against its plan."""
