"""What really happened: engines' own start-up logs, read and held against the prediction."""
