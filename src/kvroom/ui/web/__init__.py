"""The page, its JSON over HTTP, and its static files."""
