"""A method that fails and quotes what it works on, each way a setting."""

from dataclasses import dataclass

from hostile.leaks import LEAKS, PROCESS, TEXT

from harness.contracts import Method, Strength


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
        (LEAKS | PROCESS)[self.leak]()
        yield
