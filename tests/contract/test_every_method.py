"""Every method in methods/, found by its file, keeps the contract."""

import pytest

from harness.plugins import METHODS
from harness.testing import MethodConformance


class TestEveryMethod(MethodConformance):
    @pytest.fixture(params=METHODS.names())
    def name(self, request):
        return request.param
