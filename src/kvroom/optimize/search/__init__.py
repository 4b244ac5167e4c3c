"""Which hardware, layout and settings serve a load within its objectives."""
