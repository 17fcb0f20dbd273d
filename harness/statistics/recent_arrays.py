"""Arrays that take long to compute and are asked for again and again, kept while there is room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

from harness.statistics.item_values import Floats


class RecentArrays:
    """Keeps the arrays that were asked for last; several threads may ask.

    Args:
        most_bytes: How much they take together, at most.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._arrays: OrderedDict[Hashable, Floats] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Floats]) -> Floats:
        """Return the array of a key, which nobody can write to: the kept one, or what `make` returns.

        Example:
            >>> import numpy as np
            >>> recent = RecentArrays(most_bytes=16)
            >>> recent.get("a", lambda: np.ones(2)) is recent.get("a", lambda: np.zeros(2))
            True
        """
        with self._lock:
            if key in self._arrays:
                self._arrays.move_to_end(key)
                return self._arrays[key]
        array = make()
        array.setflags(write=False)
        with self._lock:
            self._bytes += array.nbytes - (self._arrays[key].nbytes if key in self._arrays else 0)
            self._arrays[key] = array
            while self._bytes > self._most_bytes:
                self._bytes -= self._arrays.popitem(last=False)[1].nbytes
        return array
