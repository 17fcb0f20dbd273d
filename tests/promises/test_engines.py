"""One training on every engine: inline, on Ray, and by DeepSpeed's four stages; of all weights, and of adapters."""

import shutil

import pytest
import torch

from harness import load_results, run_sweep
from tests.promises.models import make_checkpoint, make_encoder, random_texts, write_lines
from tests.promises.naive import loaded, recited_texts

ENGINES = {
    "plain": "torch",
    **{f"zero{stage}": f"{{deepspeed: {{zero_stage: {stage}}}}}" for stage in range(4)},
    "shared": "{deepspeed: {zero_stage: 3, workers: 2}}",
}
STAGES = [f"zero{stage}" for stage in range(4)]
SWEEP = """# Is it the same on every engine?
name: engines
models: [MODELS]
data:
  forget: {source: jsonl, path: forget.jsonl, prefix_tokens: 4, sequence_tokens: 12}
  utility: {source: jsonl, path: utility.jsonl, prompts: 4, prompt_tokens: 4, reference_tokens: 7}
  validation: {source: jsonl, path: utility.jsonl, sequences: 1}
training: {learning_rate: 1.0e-3, global_batch: 3, micro_batch: 2, early_stop: null}
methods:
  whole: {method: gradient_ascent, epochs: [2]}
  adapted: {method: gradient_ascent, epochs: [2], training: {lora: {rank: 2}}}
evaluators: {memorization: {el_prefixes: 3}}
judges: {perplexity: original, features: original, similarity: encoder, coherence: encoder}
keep_erased: all
"""
NUMBERS = ("ma", "ma_all", "el_3", "ss", "exact_match", "exact_match_original")
ROUNDING = 1e-5
"""What DeepSpeed's weights differ by at most after four steps of 1e-3: it sums the same gradients in another order."""


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with a model for each engine, and texts that they recite."""
    folder = tmp_path_factory.mktemp("engines")
    model = loaded(make_checkpoint(folder / "model"))
    for number, name in enumerate(ENGINES):
        # A sweep refuses the same weights twice: these differ in the last position's, which no text reaches.
        torch.nn.init.constant_(model.transformer.wpe.weight[-1], number)
        shutil.copytree(folder / "model", folder / name)
        model.save_pretrained(folder / name)
    make_encoder(folder / "encoder")
    write_lines(folder / "forget.jsonl", recited_texts(model, "gpt-neo", 5, 12))
    write_lines(folder / "utility.jsonl", random_texts(4, 40, seed=3))
    return folder


def swept(folder, executor, *names):
    """Return the results of a sweep over these models, each on its engine."""
    models = ", ".join(f"{{id: {name}, engine: {ENGINES[name]}}}" for name in names)
    (folder / "sweep.yaml").write_text(SWEEP.replace("MODELS", models))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_sweep("sweep.yaml", executor=executor, results=folder / f"{executor} {names[-1]}")
    results = load_results(folder / f"{executor} {names[-1]}" / "engines")
    assert not results.unfinished
    return results


@pytest.fixture(scope="module")
def inline(world):
    return swept(world, "inline", "plain", *STAGES)


@torch.no_grad()
def erased(folder, results, model, variant):
    """Return a point's numbers, and how far each weight moved, in one row."""
    [row] = results.table[(results.table["model"] == model) & (results.table["variant"] == variant)].to_dict("records")
    pairs = zip(results.model(row["point_id"]).parameters(), loaded(folder / model).parameters(), strict=True)
    return {name: row[name] for name in NUMBERS}, torch.cat([(after - before).flatten() for after, before in pairs])


def test_ray_has_the_numbers_of_inline_in_every_digit(world, inline):
    ray = swept(world, "ray", "plain")
    for variant in ("whole", "adapted"):
        (ours, our_moves), (theirs, their_moves) = (erased(world, one, "plain", variant) for one in (inline, ray))
        assert ours == theirs
        assert torch.equal(our_moves, their_moves)


def check_like_plain(world, inline, results, name, variant):
    """Compare an engine's weights, and what is counted of what they recite, with the plain engine's."""
    plain, moves = erased(world, inline, "plain", variant)
    numbers, their_moves = erased(world, results, name, variant)
    assert float(moves.abs().max()) > 100 * ROUNDING
    assert float((their_moves - moves).abs().max()) < ROUNDING
    assert numbers == pytest.approx(plain, rel=1e-4)


@pytest.mark.parametrize("variant", ["whole", "adapted"])
@pytest.mark.parametrize("name", STAGES)
def test_every_stage_trains_to_the_plain_engines_weights(name, variant, world, inline):
    """Whatever it partitions, over partial batches."""
    check_like_plain(world, inline, inline, name, variant)


@pytest.mark.soak
def test_two_workers_train_to_the_plain_engines_weights(world, inline):
    shared = swept(world, "ray", "shared")
    for variant in ("whole", "adapted"):
        check_like_plain(world, inline, shared, "shared", variant)
