"""Loads the shared fixtures where tests run; pytest-xdist's own process would import torch for nothing, for seconds."""


def pytest_configure(config):
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.import_plugin("tests.fixtures")
