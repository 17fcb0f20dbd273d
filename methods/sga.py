"""Selective gradient ascent."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from harness.contracts import ErasedModel, ErasureTask, LogUniform, Model
from harness.toolkit import TrainedMethod, accuracies, ascent, train_and_yield


@dataclass(frozen=True, kw_only=True)
class SelectiveGradientAscent(TrainedMethod):
    """Raises the loss of the forget texts that are still memorised: −L_NLL where MA is at least a threshold.

    They are chosen again before each epoch; without any, training ends.

    Differs from the paper: its memorisation score and schedule are not public. Here the score is MA after the prefix,
    and the default threshold is ours.

    Source: Barbulescu and Triantafillou, "To Each (Textual Sequence) Its Own", arXiv:2405.03097.
    """

    label = "SGA"
    source = "Barbulescu and Triantafillou 2024, arXiv:2405.03097"
    version = 1

    threshold: Annotated[float, Ge(0.0), Le(1.0), LogUniform(low=0.2, high=0.9)] = 0.5
    """Least MA of a sequence to train on; 0 chooses all."""

    def erase(self, task: ErasureTask) -> Iterator[ErasedModel]:
        from harness.toolkit import greedy_choices

        def memorised(model: Model, epoch: int) -> list[int]:
            predicted_NT, first = greedy_choices(model, task.forget), task.forget.prefix_tokens
            scores_N = accuracies(task.forget, predicted_NT, first=first, left_out=1)
            # A text too short to have a score is no reason to leave it as it is.
            return [row for row, score in enumerate(scores_N) if not score < self.threshold]

        yield from train_and_yield(task, task.load_original(), ascent, select_rows=memorised)
