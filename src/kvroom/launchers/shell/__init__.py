"""Shell scripts: read and followed as a shell would, and never run."""
