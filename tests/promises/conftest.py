"""What the promises share: quiet libraries, one thread, and no cache of whoever runs them.

Nothing here, or in the tests, knows the inside of the harness: only commands, files, `run_sweep`, `load_results`, the
contracts, the toolkit's public functions and the plugins' classes. So they pass unchanged while it is rebuilt.
"""

import gc
import importlib
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """As a trial of one CPU computes: sums of another order have other last bits."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """What a plan keeps of texts and checkpoints is kept for this run of the tests."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.getbasetemp().parent / "user-cache")


@pytest.fixture(scope="session", autouse=True)
def libraries(one_thread, own_cache, copied_mlflow_tables):
    """What trials and reports import is imported now, and never looked through again: garbage is collected after each
    trial, which would take half a second for these alone."""
    for name in ("peft", "deepspeed", "mlflow", "sqlalchemy.orm", "sklearn.decomposition", "matplotlib.figure"):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
