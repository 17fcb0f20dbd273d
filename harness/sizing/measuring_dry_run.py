"""Dry-runs a trial's measuring: the largest passes that the toolkit's decoders and the judges make, on fake tensors.

Evaluators decide by values what they do, so they cannot be run themselves. What they can ask for bounds
what they hold: greedy continuations of the forget set, generations, questions with their choices, a judge at a
time, the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.contracts import Checkpoint, Model, QuestionsShape
from harness.models.configurations import longest_context
from harness.models.loading import unloaded_model
from harness.models.resolving import CAUSAL_ROLES, ensure_local
from harness.sizing.cuda_autocast import CudaAutocast
from harness.sizing.memory_tracker import Bytes, MemoryTracker
from harness.specs import Source
from harness.toolkit.batches import JUDGE_BYTES, read_at_once, rows_at_once, vocabulary_of
from harness.toolkit.decoding.cache import Prefilled, bytes_per_token, joined
from harness.toolkit.decoding.choices import branched_logits, choices_at_once, contexts_at_once, read_beginnings
from harness.toolkit.decoding.greedy import SEQUENCES_AT_ONCE, continued_at_once
from harness.toolkit.decoding.sampling import sampled_at_once
from harness.toolkit.decoding.stepping import prefill, stepper
from harness.toolkit.scoring import SCORED_ROWS, score_batch

EMBEDDED_AT_ONCE = 64
CHOICE_SHARE = 4
"""A choice is taken to be a quarter of its question's tokens."""


def with_judges(of_model: Sequence[Bytes], of_judges: Sequence[Bytes]) -> list[Bytes]:
    """Return what each pass holds with the judges that are loaded then: small ones together, or a large one.

    Args:
        of_model: Passes of the erased model.
        of_judges: A pass of each judge, with its weights.
    """
    weights = [judge.judges for judge in of_judges]
    together = max([min(sum(weights), JUDGE_BYTES), *weights], default=0)
    passes = [*of_model, *of_judges]
    return [Bytes(activations=held.activations, caches=held.caches, judges=together) for held in passes]


def lowered_in_place(model: Model, dtype: torch.dtype) -> Model:
    """Return the model with weights of this type; fake tensors can be neither swapped for others nor copied."""
    lowered: dict[torch.nn.Parameter, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False):
            if weight not in lowered:
                lowered[weight] = torch.nn.Parameter(weight.detach().to(dtype))
            module.register_parameter(name, lowered[weight])
    return model


def model_passes(model: Model, forget: Source, utility: Source, device: torch.device) -> list[Bytes]:
    """Return what each kind of pass holds besides the model that is measured, as if on `device`."""
    greedy = _tracked(lambda tracker: _greedy_pass(tracker, forget, model, device), device)
    return [greedy, _tracked(lambda tracker: _sampled_pass(tracker, utility, model, device), device)]


def question_passes(model: Model, questions: QuestionsShape, device: torch.device) -> list[Bytes]:
    """Return what reading questions for `log_likelihoods` holds besides the model, as if on `device`."""
    # What a model cannot read is cut off.
    questions = replace(questions, longest=min(questions.longest, longest_context(model.config)))
    passes = (_contexts_then_choices, _whole_choices)
    return [_tracked(lambda tracker, of=of: of(tracker, questions, model, device), device) for of in passes]  # type: ignore[misc]


def judge_pass(
    role: str, judge: Checkpoint, forget: Source, utility: Source, device: torch.device, dtype: torch.dtype
) -> Bytes:
    """Return what a judge's largest pass holds, its weights as `judges`; a causal one computes in `dtype`."""
    if role in CAUSAL_ROLES:
        return _tracked(lambda tracker: _causal_judge(tracker, judge, utility, device, dtype), device)
    tokens = max(source.longest - source.prefix_tokens for source in (forget, utility))
    return _tracked(lambda tracker: _encoder(tracker, judge, tokens), device)


def _tracked(run: Callable[[MemoryTracker], Iterator[Any]], device: torch.device) -> Bytes:
    casts = CudaAutocast() if device.type == "cuda" else nullcontext()
    with MemoryTracker() as tracker, torch.inference_mode(), casts:
        for _ in run(tracker):
            pass
        return tracker.peak()


def _greedy_pass(tracker: MemoryTracker, forget: Source, model: Model, device: torch.device) -> Iterator[Any]:
    """Continue prefixes of the forget set, from as many mismatches as are continued at once."""
    tracker.add_model(model)
    length = forget.longest
    sequences = min(rows_at_once(vocabulary_of(model), length, device, most=SEQUENCES_AT_ONCE), forget.rows)
    logits, source = _read_in_parts(tracker, model, sequences, length, device)
    yield logits[:, :-1].topk(2, dim=-1), source
    del logits
    rows = min(continued_at_once(source, length, device), sequences * length)
    yield from _advanced(tracker, model, source, rows, length, 1)


def _sampled_pass(tracker: MemoryTracker, utility: Source, model: Model, device: torch.device) -> Iterator[Any]:
    """Write after the utility prompts."""
    tracker.add_model(model)
    prompt = utility.prefix_tokens
    rows = min(sampled_at_once(model, prompt, utility.longest, device, is_cached=True), utility.rows)
    logits, source = _read_in_parts(tracker, model, rows, prompt, device)
    del logits
    yield from _advanced(tracker, model, source, rows, utility.longest, prompt)


def _contexts_then_choices(
    tracker: MemoryTracker, questions: QuestionsShape, model: Model, device: torch.device
) -> Iterator[Any]:
    """Read contexts, which are most of a question, and then the choices that continue them."""
    tracker.add_model(model)
    width = max(1, questions.longest // CHOICE_SHARE)
    shared = questions.longest - width
    one = read_beginnings(model, torch.zeros(1, 1, dtype=torch.long))
    if one is None:  # It reads whole texts alone.
        return
    contexts = min(contexts_at_once(model, shared, bytes_per_token(one), device), questions.questions)
    source = read_beginnings(model, torch.zeros(contexts, shared, dtype=torch.long))
    assert source is not None, "that of one row was kept"
    tracker.means("caches", [held for layer in source.layers for held in (layer.keys, layer.values)])
    rows = choices_at_once(model, width, device, most=contexts * questions.choices)
    sources = torch.zeros(rows, dtype=torch.long)
    yield branched_logits(model, source, sources, torch.zeros(rows, width, dtype=torch.long))


def _whole_choices(
    tracker: MemoryTracker, questions: QuestionsShape, model: Model, device: torch.device
) -> Iterator[Any]:
    """Read choices whose contexts are no other's."""
    tracker.add_model(model)
    rows = choices_at_once(model, questions.longest, device, most=questions.questions * questions.choices)
    yield branched_logits(model, None, torch.empty(0), torch.zeros(rows, questions.longest, dtype=torch.long))


def _read_in_parts(
    tracker: MemoryTracker, model: Model, rows: int, tokens: int, device: torch.device
) -> tuple[torch.Tensor, Prefilled]:
    """Read rows in parts; return the logits of the last part, the only ones that are held, and the caches of all."""
    part = min(read_at_once(tokens, device), rows)
    earlier = []
    if rows > part:
        _, source = _read_part(tracker, model, part, tokens)
        with tracker.counting("caches"):
            earlier.append(_with_rows(source, rows - part))
    logits, source = _read_part(tracker, model, part, tokens)
    return logits, joined([*earlier, source])


def _read_part(tracker: MemoryTracker, model: Model, rows: int, tokens: int) -> tuple[torch.Tensor, Prefilled]:
    logits, source = prefill(model, torch.zeros(rows, tokens, dtype=torch.long), is_cached=True)
    if not isinstance(source, torch.Tensor):
        tracker.means("caches", [held for layer in source.layers for held in (layer.keys, layer.values)])
    return logits, source


def _with_rows(source: Prefilled, rows: int) -> Prefilled:
    """Return what is left of a pass over so many rows, given that of another."""
    if isinstance(source, torch.Tensor):
        return source.new_empty(rows, *source.shape[1:])
    for layer in source.layers:
        layer.keys, layer.values = (held.new_empty(rows, *held.shape[1:]) for held in (layer.keys, layer.values))
    return source


def _advanced(
    tracker: MemoryTracker, model: Model, source: Prefilled, rows: int, tokens: int, start: int
) -> Iterator[Any]:
    # Without a cache the last step, which reads a whole row, is the largest.
    start = tokens - 1 if isinstance(source, torch.Tensor) else start
    with tracker.counting("caches"):
        advancing = stepper(model, source, rows, tokens, start)
    advancing.join(torch.zeros(rows, dtype=torch.long))
    yield advancing.step(torch.zeros(rows, dtype=torch.long)), source
    if tokens > start + 2 and any(weight.dtype != torch.float32 for weight in model.parameters()):
        # Attention may compute in fp32, on copies of keys and values that grow with every step: the last has most.
        advancing.skip(tokens - start - 3)
        yield advancing.step(torch.zeros(rows, dtype=torch.long))


def _causal_judge(
    tracker: MemoryTracker, judge: Checkpoint, utility: Source, device: torch.device, dtype: torch.dtype
) -> Iterator[Any]:
    """Read generations with their prompts."""
    model = tracker.loading(lambda: unloaded_model(judge, dtype), "judges")
    tokens = utility.longest
    rows = min(rows_at_once(model.config.vocab_size, tokens, device, most=SCORED_ROWS), utility.rows)
    yield score_batch(model, torch.zeros(rows, tokens, dtype=torch.long), torch.full((rows,), tokens))


def _encoder(tracker: MemoryTracker, judge: Checkpoint, tokens: int) -> Iterator[Any]:
    """Embed continuations."""
    from transformers import AutoConfig, AutoModel

    folder = Path(ensure_local(judge, weights=False).location)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    model = tracker.loading(lambda: AutoModel.from_config(config, dtype=torch.float32).eval(), "judges")
    batch = torch.zeros(EMBEDDED_AT_ONCE, min(tokens, config.max_position_embeddings), dtype=torch.long)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield model(input_ids=batch, attention_mask=torch.ones_like(batch))
