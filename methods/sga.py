"""Selective gradient ascent."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le

from harness.contracts import ErasedModel, ErasureTask, LogUniform, Model
from harness.toolkit import TrainedMethod, ascent, memorization_accuracy, train_and_yield


@dataclass(frozen=True, kw_only=True)
class SelectiveGradientAscent(TrainedMethod):
    """Minimises −L_NLL on the forget sequences whose memorisation accuracy is still at least a threshold.

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
            predicted_NT = greedy_choices(model, task.forget)
            rows = []
            for row, length in enumerate(task.forget.lengths_N.tolist()):
                text, choices = task.forget.tokens_NT[row], predicted_NT[row]
                score = memorization_accuracy(text, choices, task.forget.prefix_tokens, length - 1)
                # A text too short to have a score is no reason to leave it as it is.
                if not score < self.threshold:
                    rows.append(row)
            return rows

        yield from train_and_yield(task, task.load_original(), ascent, select_rows=memorised)
