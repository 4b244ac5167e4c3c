"""The version, which a report names: here, so that what stands low imports nothing of the package itself."""

VERSION = "0.1.0"


def is_compiled() -> bool:
    """Whether the simulator that is installed is machine code (a platform's wheel) and not Python source."""
    from importlib.machinery import EXTENSION_SUFFIXES
    from pathlib import Path

    simulator = Path(__file__).parent / "simulator"
    return any((simulator / f"event_engine{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
