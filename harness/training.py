"""Training settings, the same for all trained methods, and LoRA, which is off by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, MinLen, doc

from harness.search_space import LogUniform

LossRegion = Literal["all", "continuation"]
Precision = Literal["fp32", "bf16"]

Count = Annotated[int, Ge(0)]
PositiveCount = Annotated[int, Ge(1)]
NonNegative = Annotated[float, Ge(0.0)]
Positive = Annotated[float, Gt(0.0)]

MEMORY_SETTINGS = ("micro_batch", "activation_checkpointing")
"""Settings of `Training` that decide how much memory a step takes, and no number."""
ALL_LINEAR: Literal["all-linear"] = "all-linear"


@dataclass(frozen=True, kw_only=True)
class LoRA:
    """Low-rank adapters: W + alpha / rank · B A, of which A and B alone are trained.

    There is no dropout, as nowhere in the training loop: its masks would depend on how a global batch is cut.

    Source: Hu et al., arXiv:2106.09685, section 4.1.

    Example:
        >>> LoRA(rank=16).alpha, LoRA(rank=16, alpha=16).scaling, LoRA(rank=2, targets=("v", "q")).targets
        (32, 1.0, ('q', 'v'))
    """

    rank: PositiveCount
    """Rank of each update, alpha / rank · B A."""
    alpha: PositiveCount | None = None
    """Null: twice the rank."""
    targets: Annotated[
        Literal["all-linear"] | Annotated[Sequence[str], MinLen(1)], doc(f"{ALL_LINEAR}, or a list of names of modules")
    ] = ALL_LINEAR
    """Adapted matrices: all of attention and MLP (`all-linear`), or modules by their names, in every layer."""

    def __post_init__(self) -> None:
        """Say what was left to be said, so that equal adapters have equal settings."""
        object.__setattr__(self, "alpha", 2 * self.rank if self.alpha is None else self.alpha)
        if not isinstance(self.targets, str):
            object.__setattr__(self, "targets", tuple(sorted(set(self.targets))))

    @property
    def scaling(self) -> float:
        """Return what B A is multiplied by."""
        assert self.alpha is not None
        return self.alpha / self.rank

    def plain(self) -> dict[str, Any]:
        """Return the settings as plain data.

        Example:
            >>> LoRA(rank=4).plain()
            {'rank': 4, 'alpha': 8, 'targets': 'all-linear'}
        """
        return asdict(self)

    def __str__(self) -> str:
        """Return what tables call it.

        Example:
            >>> str(LoRA(rank=16)), str(LoRA(rank=4, alpha=4, targets=("q_proj", "v_proj")))
            ('LoRA of rank 16 (alpha 32)', 'LoRA of rank 4 (alpha 4, q_proj and v_proj)')
        """
        targets = "" if isinstance(self.targets, str) else f", {' and '.join(self.targets)}"
        return f"LoRA of rank {self.rank} (alpha {self.alpha}{targets})"


@dataclass(frozen=True, kw_only=True)
class Training:
    """Training settings, the same for every trained method, so that methods stay comparable."""

    learning_rate: Annotated[Positive, LogUniform(low=1e-6, high=1e-3)] = 1e-5
    """The same for all trained methods, unless a row says otherwise."""
    global_batch: PositiveCount = 64
    """Sequences an optimiser step sees, however they are accumulated."""
    micro_batch: PositiveCount = 16
    """Sequences in one forward pass; changes memory and speed, not the loss."""
    activation_checkpointing: bool = False
    """Keep of each layer only what enters it, and compute the rest again backwards: less memory, a third more
    arithmetic, and the same numbers."""
    weight_decay: NonNegative = 0.0
    """AdamW's."""
    precision: Precision = "fp32"
    """Precision of the forward and backward pass; weights and optimiser state stay fp32."""
    loss_region: LossRegion = "all"
    """Tokens that a loss counts: every predicted one, or only the continuation's."""
    early_stop: Annotated[float, Gt(1.0)] | None = 1.03
    """Stop after the first whole epoch whose validation perplexity exceeds this times the original's."""
    lora: LoRA | None = None
    """Train low-rank adapters instead of the weights; None: the weights."""

    def plain(self) -> dict[str, Any]:
        """Return the settings as plain data; no word of what is off and was not there at first, such as LoRA.

        Example:
            >>> "lora" in Training().plain(), Training(lora=LoRA(rank=4)).plain()["lora"]["alpha"]
            (False, 8)
        """
        unsaid = [name for name in ("activation_checkpointing", "lora") if not getattr(self, name)]
        settings = {name: value for name, value in asdict(self).items() if name not in unsaid}
        return {**settings, "lora": self.lora.plain()} if self.lora else settings

    def identity(self) -> dict[str, Any]:
        """Return the settings that decide numbers: all but how a batch is cut, and what of it is kept in memory.

        Example:
            >>> Training(micro_batch=1, activation_checkpointing=True).identity() == Training().identity()
            True
        """
        return {name: value for name, value in self.plain().items() if name not in MEMORY_SETTINGS}

    def in_words(self) -> dict[str, Any]:
        """Return the settings as a report shows them, each of one line."""
        return {**self.plain(), "lora": str(self.lora)} if self.lora else self.plain()
