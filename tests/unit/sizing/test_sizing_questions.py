"""What reading questions needs, told without running it, against torch's own accounting of a run."""

import pytest
import torch

from harness.contracts import QuestionsShape
from harness.sizing.measuring_dry_run import question_passes
from harness.sizing.memory_tracker import MemoryTracker
from harness.toolkit.batches import LOGIT_BYTES
from harness.toolkit.decoding.choices import AnswerChoice, log_likelihoods
from harness.toolkit.decoding.greedy import CACHE_BYTES

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def asked(shape, vocabulary, is_shared):
    """Return made-up choices of that shape, a quarter of a question each; else every choice has its own context."""
    width, choices = shape.longest // 4, []
    for number in range(shape.questions * shape.choices):
        question = number // shape.choices if is_shared else number
        context = tuple((question + at) % vocabulary for at in range(shape.longest - width + 1))
        choices.append(AnswerChoice(context, tuple((number * at) % vocabulary for at in range(width))))
    return choices


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize(
    ("layers", "hidden", "vocabulary", "longest"),
    [(2, 32, 8_000, 64), (8, 128, 512, 256)],
    ids=["mostly logits", "mostly activations and caches"],
)
def test_questions_are_told_to_within_a_tenth(make_model, measured, layers, hidden, vocabulary, longest, is_shared):
    shape = QuestionsShape(2_048 // longest, 4, longest)
    sizes = {"layers": layers, "hidden": hidden, "vocabulary": vocabulary, "positions": 256, "scale": 0.02}
    unloaded, model = MemoryTracker().loading(lambda: make_model(**sizes)), make_model(**sizes)
    choices = asked(shape, vocabulary, is_shared)
    told = question_passes(unloaded, shape, CPU)[0 if is_shared else 1]
    run = measured(lambda: log_likelihoods(model, choices))
    assert told.activations + told.caches == pytest.approx(run, rel=0.1)


def test_a_gpu_reads_as_much_as_its_budgets_take_and_no_text_beyond_a_models_context(make_model):
    model = MemoryTracker().loading(lambda: make_model(vocabulary=4_000, positions=128))
    many = QuestionsShape(10**6, 4, 128)
    contexts, whole = question_passes(model, many, CUDA)
    assert whole.activations > 0.9 * LOGIT_BYTES["cuda"]
    assert whole.caches == 0 < contexts.caches <= CACHE_BYTES["cuda"]
    assert question_passes(model, QuestionsShape(10**6, 4, 512), CUDA) == [contexts, whole]
    few = question_passes(model, QuestionsShape(2, 4, 128), CUDA)
    assert all(of_few.total < 0.01 * of_many.total for of_few, of_many in zip(few, (contexts, whole), strict=True))
