"""What Ray must be told before it is imported, since it reads several of these variables while it is."""

from __future__ import annotations

import os
import secrets
import sys

IS_LOCAL = "RAY_ADDRESS" not in os.environ
"""Whether Ray is started here, rather than joined on a cluster."""
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
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Its name hides it: binds everything to 127.0.0.1.
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),  # Else Ray writes one to ~/.ray.
}


def set_ray_environment() -> None:
    """Set what is not set, before the first import of Ray; afterwards it would be too late, so nothing is."""
    if "ray" not in sys.modules:
        for name, value in {**_SETTINGS, **(_LOCAL_SETTINGS if IS_LOCAL else {})}.items():
            os.environ.setdefault(name, value)
