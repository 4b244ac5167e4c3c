"""What to do about it: which lever, which hardware, the engine's command line."""
