"""``python -m kvroom`` is the command ``kvroom``."""

from kvroom.faces.cli import main

if __name__ == "__main__":
    main()
