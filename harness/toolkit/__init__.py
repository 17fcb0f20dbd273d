"""Stable names for methods and evaluators."""

# isort: skip_file
# A list of names, as many in a line as fit.

from typing import TYPE_CHECKING, Any

from harness.data.sequences import chosen_sequences
from harness.miniature import reasoning_rows as embedded_task
from harness.models.adapters import WeightMasks
from harness.models.blocks import lacks_blocks as lacks_layers
from harness.models.loading import check_encoder, check_sentence_encoder, load_encoder, load_tokenizer
from harness.models.tokenizing import before_end, data_set_commit, data_set_folder, decoded, retokenized, texts_key
from harness.models.tokenizing import continuation_ids, token_lists, tokenized, true_continuations, unpadded
from harness.toolkit.decoding import Continuations, continuations_by_group, greedy_choices, greedy_continuations
from harness.toolkit.decoding import sample, sampling_log_p
from harness.toolkit.device import computing_device, padded_batches, room_after, rows_at_once
from harness.toolkit.engines import LossTerms, Step
from harness.toolkit.finetune import Epoch, Epochs, RetainedMethod, RetainMethod, RetainWeight, SumRetainWeight
from harness.toolkit.finetune import TrainedMethod, TrainingParts, train, train_and_yield, trained_briefly, whole_loss
from harness.toolkit.layerwise import LogitLens, MLPMatrix, SecondMoments, gradients_by_layer, hidden_states
from harness.toolkit.layerwise import loss_gradient, mlp_matrices, second_moments
from harness.toolkit.losses import Batch, ascent, mean_nll, nll_loss, nll_rise, npo_loss, preference_loss
from harness.toolkit.losses import token_distillation, token_kl, token_negative_entropy, token_nll
from harness.toolkit.rounding import experts_in_one_tensor, make_rounding, rounded_copy
from harness.toolkit.scoring import CausalJudge, Scores, accuracies, auc_items, judge_key, recited_lengths, score_tokens

if TYPE_CHECKING:
    from harness.toolkit.cached_models import PairModel


def __getattr__(name: str) -> Any:
    if name != "PairModel":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    # It is a class of transformers, whose import takes seconds: a sweep is planned without.
    from harness.toolkit.cached_models import PairModel

    return PairModel
