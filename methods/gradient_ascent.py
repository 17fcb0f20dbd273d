"""Gradient ascent."""

from dataclasses import dataclass

from harness.toolkit import TrainedMethod, ascent


@dataclass(frozen=True, kw_only=True)
class GradientAscent(TrainedMethod):
    """Raises the loss of forget texts: minimises −L_NLL(forget).

    Source: Jang et al., arXiv:2210.01504, section 3.1; settings: joeljang/knowledge-unlearning.
    """

    label = "GA"
    source = "Jang et al. 2023, arXiv:2210.01504"
    version = 2
    published = {"training.learning_rate": 5e-5}
    loss = staticmethod(ascent)
