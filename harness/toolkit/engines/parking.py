"""Parking: tensors leave a device while nobody computes with them, and come back bit for bit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

SCARCE = frozenset({"cuda"})
"""Kinds of device whose memory is saved. Parked tensors go to the CPU's, where nothing would be gained."""


def waiting_device(device: torch.device) -> torch.device | None:
    """Return where weights wait that nobody computes with; None: where they are, since nothing would be gained.

    Example:
        >>> waiting_device(torch.device("cuda")), waiting_device(torch.device("cpu"))
        (device(type='cpu'), None)
    """
    return torch.device("cpu") if device.type in SCARCE else None


class Parking:
    """What was taken off a device, for as long as it is away.

    Whole storages are emptied, not tensors: all tensors that look into one stay what they are, and find
    their values again. In between their memory is gone, and reading them is an error that ends the process.

    Example:
        >>> matrix = torch.ones(2, 3)
        >>> Parking().park([matrix[0]])
        >>> matrix.untyped_storage().nbytes()  # On a CPU nothing is moved.
        24
    """

    def __init__(self) -> None:
        self._away: list[tuple[torch.UntypedStorage, torch.UntypedStorage]] = []

    @property
    def bytes(self) -> int:
        """Return how much is away."""
        return sum(values.nbytes() for _, values in self._away)

    def park(self, tensors: Iterable[torch.Tensor]) -> None:
        """Move the memory behind these tensors to the CPU's, as far as it is scarce where it is."""
        for storage in _storages(tensors):
            if storage.device.type in SCARCE and storage.nbytes():
                self._away.append((storage, torch.UntypedStorage(storage.nbytes()).copy_(storage)))
                storage.resize_(0)
        empty_device_cache()

    def restore(self) -> None:
        """Bring everything back to where it was."""
        while self._away:
            storage, values = self._away.pop()
            storage.resize_(values.nbytes())
            storage.copy_(values)

    def forget(self) -> None:
        """Drop what is away: it is not needed again."""
        self._away.clear()


def free(tensors: Iterable[torch.Tensor]) -> None:
    """Free the memory behind these tensors, whoever may still refer to them; they cannot be read any more."""
    for storage in _storages(tensors):
        if storage.resizable():
            storage.resize_(0)
    empty_device_cache()


def _storages(tensors: Iterable[torch.Tensor]) -> Iterator[torch.UntypedStorage]:
    seen: set[int] = set()
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.device.type != "meta" and storage.nbytes() and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            yield storage


def empty_device_cache() -> None:
    """Give a GPU back what torch keeps of freed memory."""
    # Freed blocks of a few gigabytes are of use to larger ones only once the device has them back.
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
