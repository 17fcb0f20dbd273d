"""Process groups that nobody outside of this machine can reach."""

from __future__ import annotations

import socket

_LOOPBACK = ("lo", "lo0")
_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def loopback_variables() -> dict[str, str]:
    """Return the environment that keeps the sockets of gloo and NCCL on the loopback interface.

    torch's own TCP store listens on every interface whatever it is told, so a group that stays on one machine meets
    without it: in a file, or, of one process, in its memory.
    """
    names = [name for _, name in socket.if_nameindex() if name in _LOOPBACK]
    return dict.fromkeys(_VARIABLES, names[0]) if names else {}
