"""Process groups that nobody outside of this machine can reach."""

from __future__ import annotations

import socket

_LOOPBACK = ("lo", "lo0")
_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def loopback_variables() -> dict[str, str]:
    """Return the environment that keeps the sockets of gloo and NCCL on the loopback interface.

    torch's own TCP store always listens on every interface. So a group that stays on one machine does without it: its
    processes meet in a file, and a single process in its memory.
    """
    names = [name for _, name in socket.if_nameindex() if name in _LOOPBACK]
    return dict.fromkeys(_VARIABLES, names[0]) if names else {}
