"""A planner of texts, for the tests of plans."""

import pytest

from harness.errors import ConfigError
from harness.planning.plan import plan


@pytest.fixture
def plan_text(world, tmp_path):
    """Return a planner of a sweep file's text with changes, in which names stand for checkpoints and this folder."""
    places = {name: world / name for name in ("MODEL", "OTHER", "THIRD")} | {"FOLDER": tmp_path}

    def filled(text):
        for name, place in places.items():
            text = text.replace(name, str(place))
        return text

    def run(text, *changes, only=()):
        file = tmp_path / "file.yaml"
        file.write_text(filled(text).lstrip())
        return plan(file, [filled(change) for change in changes], only)

    return run


@pytest.fixture
def refused():
    """Return a runner of a planner that refuses its changes: the path and the reason of the one fault."""

    def run(planned, *changes, **more):
        with pytest.raises(ConfigError) as caught:
            planned(*changes, **more)
        [fault] = caught.value.faults
        return fault.path, fault.reason

    return run
