"""What the tests of planning share: a planner of a module's own sweep file."""

from functools import partial

import pytest


@pytest.fixture
def planned(request, plan_text):
    """Return a planner of the module's FILE with changes."""
    return partial(plan_text, request.module.FILE)
