"""Loads the shared fixtures in processes that run tests."""


def pytest_configure(config):
    # With --numprocesses this process only hands out tests, and would import torch and transformers for seconds.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.import_plugin("tests.fixtures")
