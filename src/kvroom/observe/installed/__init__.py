"""The engine that is installed beside kvroom, asked itself: its cache code for capacity, its scheduler."""
