"""A library that sets a variable of the environment when it is imported."""

import os

os.environ["HOSTILE_LIBRARY"] = "1"
