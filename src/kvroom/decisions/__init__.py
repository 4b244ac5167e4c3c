"""What to do: commands that realise a plan."""
