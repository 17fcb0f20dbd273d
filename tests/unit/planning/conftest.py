"""What the tests of planning share: a planner of a module's own sweep file, and what is said of a single fault."""

from functools import partial

import pytest


@pytest.fixture
def planned(request, plan_text):
    """Return a planner of the module's FILE with changes."""
    return partial(plan_text, request.module.FILE)


@pytest.fixture
def fault_at(check):
    """Return a checker of a file with one fault, which is at this path: what is said of it."""

    def run(path, *changes, **replaced):
        found = check(*changes, **replaced)
        assert list(found) == [path]
        return found[path]

    return run
