"""How people see it: command line, text, JSON."""
