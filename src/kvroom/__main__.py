"""``python -m kvroom`` is the command ``kvroom``."""

from kvroom.ui.cli.main import main

if __name__ == "__main__":
    main()
