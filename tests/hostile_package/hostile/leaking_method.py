"""A method that fails and quotes what it works on, each way a setting."""

import threading
import time
from dataclasses import dataclass

from hostile.leaks import LEAKS, PROCESS, TEXT

from harness.contracts import ErasedModel, Method, Strength


@dataclass(frozen=True, kw_only=True)
class LeakingMethod(Method):
    """Fails."""

    label = "Leak"
    source = "none"
    reference = "none"
    version = 1
    strength = Strength("epochs", cumulative=True, off=0)
    epochs: int = 1
    leak: str = "message"

    def erase(self, task):
        task.progress(TEXT)
        if self.leak == "closing":
            yield from closing(task)
        elif self.leak == "a thread's name":
            threading.Thread(target=time.sleep, args=(2,), name=TEXT).start()
            yield ErasedModel(1, task.load_original())
        else:
            (LEAKS | PROCESS)[self.leak]()
            yield


def closing(task):
    """Yield a model that is the last one, and fail once that is known."""
    try:
        yield ErasedModel(1, task.load_original(), stop_reason="it is enough")
    finally:
        raise ValueError(TEXT)
