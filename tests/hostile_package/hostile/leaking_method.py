"""A method that fails and quotes what it works on, each way a setting."""

from dataclasses import dataclass

from hostile.leaks import LEAKS, TEXT

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
        else:
            LEAKS[self.leak]()
            yield


def closing(task):
    """Yield a model that is the last one, and fail once that is known."""
    try:
        yield ErasedModel(1, task.load_original(), stop_reason="it is enough")
    finally:
        raise ValueError(TEXT)
