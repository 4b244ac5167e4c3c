"""Hypothesis: the same examples every time, so that a red run is red again; ``--hypothesis-profile
search`` looks further."""

import os

from hypothesis import HealthCheck, settings

os.environ["HF_HUB_OFFLINE"] = "1"  # a made-up hub id asks nobody

settings.register_profile(
    "default",
    derandomize=True,
    database=None,
    deadline=None,  # speed is measured by benchmarks, not judged here
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", settings.get_profile("default"), derandomize=False)
settings.register_profile(
    "search", settings.get_profile("search"), max_examples=5000, print_blob=True
)
settings.load_profile("default")
