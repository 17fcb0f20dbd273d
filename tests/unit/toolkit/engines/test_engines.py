"""What engines leave behind, and in which precision they compute."""

from functools import partial

import pytest
import torch

from harness.contracts import Training
from harness.execution.isolate import ProcessState
from harness.models.blocks import blocks
from harness.plugins import METHODS
from harness.settings import DeepSpeed, Engine, replace
from harness.toolkit.finetune import engine_for, micro_batches, train
from harness.toolkit.layerwise import gradients_by_layer
from harness.toolkit.losses import nll_loss
from tests.unit.tasks import Task, nll, weights

TRAINING = Training(learning_rate=1e-3, global_batch=4, micro_batch=2, early_stop=None)
PLAIN = Engine()
ON_DEEPSPEED = [Engine(deepspeed=DeepSpeed(zero_stage=stage)) for stage in (2, 3)]


@pytest.fixture
def make_task(make_model, forget):
    """Return a maker of tasks on a tiny model."""

    def make(engine, precision="fp32"):
        def load():
            task.loaded.append(make_model(1, layers=2))
            return task.loaded[-1]

        task = Task(forget, forget, load, replace(TRAINING, precision=precision), engine=engine)
        task.loaded = []
        return task

    return make


# What is left behind.


@pytest.mark.parametrize("engine", ON_DEEPSPEED, ids=str)
def test_after_a_training_and_after_one_that_raises_a_process_is_as_it_was(make_model, make_task, engine):
    def broken(model, batch, retain):
        nll_loss(model, batch, retain)
        raise ZeroDivisionError

    def erased():  # Of several steps: AdamW's first one goes by a gradient's sign alone.
        task = make_task(PLAIN, "bf16")
        task.strengths = (4,)
        return weights(erase("gradient_ascent", task, epochs=4).model)

    expected, model = erased(), make_model(1, layers=2)
    untouched, before = weights(model), ProcessState()
    with pytest.raises(ZeroDivisionError):
        list(train(make_task(engine), model, broken, 1))
    assert torch.equal(weights(model), untouched)
    list(train(make_task(engine, "bf16"), model, nll_loss, 1))
    assert not torch.equal(weights(model), untouched)
    assert before.changed() == []
    assert not torch.distributed.is_initialized()
    assert torch.equal(expected, erased())


# In which precision.


def erase(name, task, **settings):
    """Return what the method yields after one epoch."""
    return next(METHODS.configure(name, {"epochs": 1} | settings).erase(task))


def watched(task):
    """Make the task's models tell of their linear layers; return the list of (model, dtype) that they fill."""
    log, load = [], task.load_original

    def tell(model, module, inputs, output):
        log.append((model, output.dtype))

    def load_watched():
        model = load()
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(partial(tell, len(task.loaded)))
        return model

    task.load_original = load_watched
    return log


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("engine", [PLAIN, *ON_DEEPSPEED], ids=str)
def test_teacher_and_student_compute_in_one_precision_and_the_notes_name_it(engine, precision, make_task):
    task = make_task(engine, precision)
    log = watched(task)
    erased = erase("kl_divergence", task)
    assert {model for model, _ in log} == {1, 2}, "a teacher and a student ran"
    assert {dtype for _, dtype in log} == {torch.bfloat16 if precision == "bf16" else torch.float32}
    in_bf16 = "bf16 weights" if engine.name == "deepspeed" else "bf16 autocast"
    assert erased.notes["precision"] == (in_bf16 if precision == "bf16" else "fp32")
    assert {weight.dtype for weight in erased.model.parameters()} == {torch.float32}


def test_selection_sees_the_gradients_that_training_sees(make_model, forget):
    """In bf16: to the last bit, although the selection differentiates inside of autocast, and training outside."""
    training = replace(TRAINING, precision="bf16")
    batches = micro_batches(forget, torch.arange(4), training, torch.device("cpu"))
    model = make_model(1, layers=2)
    engine = engine_for(PLAIN, model, training)

    for batch in batches:
        with engine.forward():
            loss = nll(batch, batch.logits(model))
        engine.backward(loss)
    expected = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    matrices = {block.parameter for block in blocks(model)}

    def selected():
        by_layer = gradients_by_layer(model, batches, matrices, [nll])
        return {name: gradient for [of_layer] in by_layer for name, gradient in of_layer.items()}

    with engine.forward():
        inside = selected()
    assert inside.keys() == matrices
    assert all(torch.equal(gradient, expected[name]) for name, gradient in inside.items())
    assert not all(torch.equal(gradient, expected[name]) for name, gradient in selected().items())
