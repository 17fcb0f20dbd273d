"""What the author of a plugin writes to have it checked."""

from harness.testing import MethodConformance


class TestUnlikelihood(MethodConformance):
    plugin = "unlikelihood"
