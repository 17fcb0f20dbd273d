"""Environment variables of Ray, set before its import reads them."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping

IS_LOCAL = "RAY_ADDRESS" not in os.environ
"""False on a cluster that is joined."""
_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}
_LOCAL_SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Despite its name, it binds everything to 127.0.0.1.
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # Otherwise Ray writes one to ~/.ray.
}
_FORWARDED = frozenset(
    {
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_DATASETS_CACHE",
        "HF_ENDPOINT",
        "HF_HUB_DISABLE_XET",
        "HF_HUB_DISABLE_TELEMETRY",
        "HF_HUB_OFFLINE",
        "HF_DATASETS_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "HF_HUB_DOWNLOAD_TIMEOUT",
        "HF_HUB_ETAG_TIMEOUT",
        "TOKENIZERS_PARALLELISM",
        "DS_ACCELERATOR",
    }
)
"""Variables of a cluster's workers. Ray logs them in clear, so no secret is here: a token belongs in each machine's
HF_HOME."""
PASSED_BY_TUNE = frozenset(_SETTINGS)
"""Tune passes AWS's keys too by default."""


def forwarded_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a cluster's workers, without addresses that contain credentials.

    Example:
        >>> forwarded_environment({"HF_HUB_OFFLINE": "1", "HF_TOKEN": "hf_secret", "PATH": "/bin"})
        {'HF_HUB_OFFLINE': '1'}
    """
    forwarded = {}
    for name, value in environment.items():
        address = value.partition("://")[2]
        if name in _FORWARDED and "@" not in address and "?" not in address:
            forwarded[name] = value
    return forwarded


def set_ray_environment() -> None:
    """Set unset variables before the first import of Ray; later this does nothing."""
    if "ray" not in sys.modules:
        for name, value in (_SETTINGS | _LOCAL_SETTINGS if IS_LOCAL else _SETTINGS).items():
            os.environ.setdefault(name, value)
