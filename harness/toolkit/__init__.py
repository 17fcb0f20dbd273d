"""What methods and evaluators are made of: losses, training, decoding, judges, texts. Plugins import from here.

Together with `harness.contracts`, `harness.errors` and, to choose blocks, `harness.models.blocks`, this is all
that a plugin may import: the names below stay, the modules behind them may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.data.sequences import chosen_sequences
from harness.models.hidden_states import LogitLens, hidden_states, lacks_layers
from harness.models.loading import check_encoder, check_sentence_encoder, load_encoder, load_tokenizer
from harness.models.tokenizing import token_lists, true_continuations, unpadded
from harness.toolkit.batches import padded_batches, room_after, rows_at_once
from harness.toolkit.decoding.choices import AnswerChoice, log_likelihoods
from harness.toolkit.decoding.greedy import (
    Continuations,
    continuations_by_group,
    greedy_choices,
    greedy_continuations,
)
from harness.toolkit.decoding.sampling import sample, sampling_log_p
from harness.toolkit.device import computing_device, judges_dtype
from harness.toolkit.finetune import Epoch, TrainingParts, train, train_and_yield, whole_loss
from harness.toolkit.layerwise import gradients_by_layer
from harness.toolkit.linear_layers import MLPMatrix, SecondMoments, loss_gradient, mlp_matrices, second_moments
from harness.toolkit.losses import (
    Batch,
    mean_nll,
    nll_loss,
    preference_loss,
    token_distillation,
    token_kl,
    token_negative_entropy,
    token_nll,
)
from harness.toolkit.masks import WeightMasks, straight_through_mask
from harness.toolkit.rounding import experts_in_one_tensor, rounded_copy, rounding_to
from harness.toolkit.scoring import CausalJudge, Scores, judge_key, memorization_accuracy, score_tokens
from harness.toolkit.short_training import trained_briefly
from harness.toolkit.steps import LossTerms, Step
from harness.toolkit.texts import (
    before_end,
    cleaned,
    data_set_commit,
    data_set_folder,
    decoded,
    embedded_task,
    retokenized,
    texts_key,
    tokenized,
)
from harness.toolkit.two_samples import auc_items

if TYPE_CHECKING:
    from harness.toolkit.decoding.pair import PairModel

__all__ = [
    "AnswerChoice",
    "Batch",
    "CausalJudge",
    "Continuations",
    "Epoch",
    "LogitLens",
    "LossTerms",
    "MLPMatrix",
    "PairModel",
    "Scores",
    "SecondMoments",
    "Step",
    "TrainingParts",
    "WeightMasks",
    "auc_items",
    "before_end",
    "check_encoder",
    "check_sentence_encoder",
    "chosen_sequences",
    "cleaned",
    "computing_device",
    "continuations_by_group",
    "data_set_commit",
    "data_set_folder",
    "decoded",
    "embedded_task",
    "experts_in_one_tensor",
    "gradients_by_layer",
    "greedy_choices",
    "greedy_continuations",
    "hidden_states",
    "judge_key",
    "judges_dtype",
    "lacks_layers",
    "load_encoder",
    "load_tokenizer",
    "log_likelihoods",
    "loss_gradient",
    "mean_nll",
    "memorization_accuracy",
    "mlp_matrices",
    "nll_loss",
    "padded_batches",
    "preference_loss",
    "retokenized",
    "room_after",
    "rounded_copy",
    "rounding_to",
    "rows_at_once",
    "sample",
    "sampling_log_p",
    "score_tokens",
    "second_moments",
    "straight_through_mask",
    "texts_key",
    "token_distillation",
    "token_kl",
    "token_lists",
    "token_negative_entropy",
    "token_nll",
    "tokenized",
    "train",
    "train_and_yield",
    "trained_briefly",
    "true_continuations",
    "unpadded",
    "whole_loss",
]


def __getattr__(name: str) -> Any:
    if name != "PairModel":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    # It is a class of transformers, whose import takes seconds: a sweep is planned without.
    from harness.toolkit.decoding.pair import PairModel

    return PairModel
