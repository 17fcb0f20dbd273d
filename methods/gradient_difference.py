"""Gradient difference."""

from dataclasses import dataclass

from harness.toolkit import RetainMethod


@dataclass(frozen=True, kw_only=True)
class GradientDifference(RetainMethod):
    """Raises the loss of forget texts and lowers that of retain texts: −L_NLL(forget) + L_NLL(retain).

    Source: Liu et al., "Continual Learning and Private Unlearning", arXiv:2203.12817.
    """

    label = "GD"
    source = "Liu et al. 2022, arXiv:2203.12817"
    version = 2
