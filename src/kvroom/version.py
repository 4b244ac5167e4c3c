"""The version, which a report names: here, so that what stands low imports nothing of the package itself."""

VERSION = "0.1.0"
