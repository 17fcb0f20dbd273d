"""What each method makes of the weights, frozen; and of EMSO what it chooses, what it leaves, and what is exported.

Where a method's numbers are meant to move, `python -m tests.promises.freeze` writes frozen/methods.json again.
"""

import hashlib
import itertools
import json
import math
import re
import sys
import warnings
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch

from harness import load_results, run_sweep
from harness.toolkit import Batch, gradients_by_layer, token_negative_entropy, token_nll
from tests.promises.models import FAMILIES, kind_of_cpu, make_checkpoint, make_encoder, random_texts, write_lines
from tests.promises.naive import lines, loaded, memorization_accuracy, nll_after, recited_texts, tokens_of

FROZEN = Path(__file__).parent / "frozen" / "methods.json"
PREFIX = 4
EPOCHS = (
    *("altpo", "ceu", "emso", "gradient_ascent", "gradient_difference", "gru", "ihl", "kl_divergence", "npo"),
    *("npo_sam", "pdu", "repselect", "rmu", "satimp", "sga", "simnpo", "sugd"),
)
ROWS = dict.fromkeys(EPOCHS, "{epochs: [2]}") | {
    "emso": "{epochs: [1, 2]}", "balanced_subnet": "{dropped: [0.05]}", "contrastive_decoding": "{gamma: [0.5]}",
    "deliberate_imagination": "{gamma: [10], epochs: 2}", "kfac_edit": "{erased_mass: [0.2]}",
    "memfree": "{gamma: [10], n: 3}", "task_arithmetic": "{gamma: [0.05]}",
}  # fmt: skip
DECODING = ("contrastive_decoding", "memfree")
"""Two models that decode together are not kept: their numbers alone are frozen."""
NUMBERS = ("el_3", "ma", "ma_all", "exact_match", "own_perplexity")
SWEEP = """# What does each method make of the weights in four steps?
name: methods
models: [gpt-neo]
data:
  forget: {source: jsonl, path: forget.jsonl, prefix_tokens: 4, sequence_tokens: 12}
  retain: {source: jsonl, path: retain.jsonl}
  utility: {source: jsonl, path: utility.jsonl, prompts: 6, prompt_tokens: 4, reference_tokens: 7}
  validation: {source: jsonl, path: utility.jsonl, sequences: 1}
training: {learning_rate: 1.0e-3, global_batch: 4, early_stop: null}
memorized_model: {epochs: 2, gate: 0}
methods:
  whole_batch: {method: emso, epochs: [1], k: 5, training: {global_batch: 8}}
  adapted: {method: gradient_ascent, epochs: [2], training: {lora: {rank: 2}}}
evaluators: {memorization: {el_prefixes: 2}, language_modelling: {}}
judges: {perplexity: original, features: original, similarity: encoder, coherence: encoder}
keep_erased: all
"""
SAME_KIND = 1e-6
"""Relative, of means over fp32 on the kind of CPU that froze them: what is written has seven digits."""
ELSEWHERE = 1e-3
"""Another kind of CPU sums in another order: gradients are 1e-7 off, and AdamW's steps by as much ..."""
TURNED = 4
"""... but of a weight whose gradient is not larger than that, it makes a whole step up or down. Two such weights
of n, in a tensor of which each weight moved by the same, change its move in any direction by 4 / n of its length."""


def erase_by_all_methods(folder):
    """Write a model, texts that it recites, and a sweep of all methods to a folder; return the sweep's results."""
    model = loaded(make_checkpoint(folder / "gpt-neo"))
    make_encoder(folder / "encoder")
    write_lines(folder / "forget.jsonl", recited_texts(model, "gpt-neo", 8, 12))
    write_lines(folder / "retain.jsonl", random_texts(8, 40, seed=2))
    write_lines(folder / "utility.jsonl", random_texts(6, 40, seed=3))
    rows = "".join(f"  {name}: {settings}\n" for name, settings in ROWS.items())
    (folder / "sweep.yaml").write_text(SWEEP.replace("methods:\n", f"methods:\n{rows}"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return run_sweep("sweep.yaml", executor="inline", results=folder / "results")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("methods")
    erase_by_all_methods(folder)
    return folder


@pytest.fixture(scope="module")
def results(world):
    return load_results(world / "results" / "methods")


@pytest.fixture
def original(world):
    return loaded(world / "gpt-neo")


def digest_of(model):
    """Return a digest of every bit of a model's weights, and their names."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.contiguous().numpy().tobytes())
    return digest.hexdigest()


def moves(model, original):
    """Return of each tensor that moved how far it did, and how far in one direction: up and down in turn."""
    found, before = {}, dict(original.named_parameters())
    for name, weight in model.named_parameters():
        move = (weight - before[name]).detach().double().flatten()
        if move.any():
            in_turn = torch.ones(len(move), dtype=torch.float64)
            in_turn[1::2] = -1
            along = float(move @ in_turn) / len(move) ** 0.5
            found[name] = [float(f"{float(move.norm()):.7g}"), float(f"{along:.7g}")]
    return found


def frozen_entry(results, name, original):
    """Return what is frozen of a method at its last strength."""
    [*_, row] = results.table.query("variant == @name").to_dict("records")
    entry = {"numbers": {metric: row[metric] for metric in NUMBERS}}
    if name not in DECODING:
        model = results.model(row["point_id"])
        entry |= {"digest": digest_of(model), "moves": moves(model, original)}
    return entry


def freeze(folder):
    """Write what the methods make of the weights today."""
    torch.set_num_threads(1)
    results = erase_by_all_methods(folder)
    original = loaded(folder / "gpt-neo")
    lines = [f'  "{name}": {json.dumps(frozen_entry(results, name, original))}' for name in sorted(ROWS)]
    FROZEN.write_text(f'{{\n "cpu": "{kind_of_cpu()}",\n "methods": {{\n' + ",\n".join(lines) + "\n }\n}\n")


def test_nothing_fails_and_every_method_is_frozen(results):
    assert not results.unfinished
    assert sorted(json.loads(FROZEN.read_text())["methods"]) == sorted(ROWS)
    assert set(ROWS) == set(results.table["method"]) - {"original", "stand_in", "holdout"}
    [before] = results.table.query("variant == 'original'").to_dict("records")
    assert before["ma"] > 0.5, "there is nothing to erase"


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_weights_are_as_frozen(name, results, original):
    frozen = json.loads(FROZEN.read_text())
    expected, found = frozen["methods"][name], frozen_entry(results, name, original)
    is_same_kind = frozen["cpu"] == kind_of_cpu()
    assert found["numbers"] == pytest.approx(expected["numbers"], rel=SAME_KIND if is_same_kind else ELSEWHERE)
    if name in DECODING:
        return
    assert found["moves"].keys() == expected["moves"].keys(), "other tensors moved"
    sizes = {tensor: weight.numel() for tensor, weight in original.named_parameters()}
    for tensor, (length, along) in expected["moves"].items():
        bound = length * (SAME_KIND if is_same_kind else ELSEWHERE + TURNED / sizes[tensor])
        assert found["moves"][tensor] == pytest.approx([length, along], rel=0, abs=bound), tensor
    if is_same_kind:
        assert found["digest"] == expected["digest"]


MATRICES = {
    **{f"W_{letter}": f"attn.attention.{letter}_proj" for letter in "qkv"},
    **{"W_o": "attn.attention.out_proj", "C_fc": "mlp.c_fc", "C_proj": "mlp.c_proj"},
}


def block_of(tensors, name):
    """Return a block's part of the tensors of a GPT-Neo of four heads of eight: `L1.W_o.H3`, `L0.C_fc`."""
    layer, kind, head = re.fullmatch(r"L(\d)\.(W_[qkvo]|C_fc|C_proj)(?:\.H(\d))?", name).groups()
    matrix = tensors[f"transformer.h.{layer}.{MATRICES[kind]}.weight"]
    if head is None:
        return matrix
    part = slice(8 * int(head), 8 * int(head) + 8)
    return matrix[:, part] if kind == "W_o" else matrix[part]


def every_block():
    """Return the names of all blocks of such a GPT-Neo of two layers."""
    heads = [f"W_{letter}.H{head}" for letter in "qkvo" for head in range(4)]
    return [f"L{layer}.{name}" for layer in range(2) for name in (*heads, "C_fc", "C_proj")]


def weights_of(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def selected(results, point):
    return results.point(point).made.notes["selected_blocks"]


def test_what_emso_did_not_select_is_the_originals_bit_for_bit(results, original):
    """Each epoch moves the two blocks that it chose, and no bit besides."""
    steps = [weights_of(original), *(weights_of(results.model(f"emso@{epoch}")) for epoch in (1, 2))]
    for epoch, (before, after) in enumerate(itertools.pairwise(steps), start=1):
        names = [block["block"] for block in selected(results, f"emso@{epoch}")]
        assert len(names) == 2
        after = {name: weight.clone() for name, weight in after.items()}
        for name in names:
            assert not torch.equal(block_of(after, name), block_of(before, name))
            block_of(after, name).copy_(block_of(before, name))
        assert all(torch.equal(after[name], before[name]) for name in before)


def test_emso_selects_what_whole_gradients_say(world, results, original):
    """M = cos(g_NLL, g_EM) · |g_EM|_1 / √D of every block, on a batch of all texts: the five most negative."""
    tokens = torch.tensor([tokens_of(text) for text in lines(world / "forget.jsonl")])
    log_p = original(tokens[:, :-1]).logits.log_softmax(-1)
    nll = -log_p.gather(-1, tokens[:, 1:, None]).mean()
    negative_entropy = (log_p.exp() * log_p).sum(-1).mean()
    names, weights = zip(*original.named_parameters(), strict=True)
    of_nll, of_entropy = (
        dict(zip(names, torch.autograd.grad(loss, weights, retain_graph=True), strict=True))
        for loss in (nll, negative_entropy)
    )
    scores = {}
    for name in every_block():
        first, second = (block_of(gradients, name).flatten().double() for gradients in (of_nll, of_entropy))
        cosine = first @ second / (first.norm() * second.norm())
        scores[name] = float(cosine * second.abs().sum() / len(second) ** 0.5)
    chosen = sorted(scores, key=scores.get)[:5]
    found = selected(results, "whole_batch@1")
    assert [block["block"] for block in found] == chosen
    assert [block["m"] for block in found] == pytest.approx([scores[name] for name in chosen], rel=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_by_layer_are_those_of_the_whole_model(family, tmp_path):
    """To the last bit, of both of EMSO's losses, over two micro-batches."""
    model = loaded(make_checkpoint(tmp_path / family, family))
    rows = torch.tensor([tokens_of(text) for text in random_texts(4, 9, seed=5)])
    batches = [Batch(part, torch.ones(2, 8, dtype=torch.bool), 32, 4) for part in rows.split(2)]
    losses = (
        lambda batch, logits_BSV: batch.mean(token_nll(logits_BSV, batch.targets_BS)),
        lambda batch, logits_BSV: batch.mean(token_negative_entropy(logits_BSV)),
    )
    layer = re.compile(r"(transformer\.h|model\.layers)\.\d\..*(proj|fc)\.weight")
    wanted = {name: weight for name, weight in model.named_parameters() if layer.fullmatch(name)}
    assert len(wanted) == 2 * (6 if family == "gpt-neo" else 7)
    whole = [
        [
            sum(parts)
            for parts in zip(
                *(torch.autograd.grad(loss(batch, batch.logits(model)), list(wanted.values())) for batch in batches),
                strict=True,
            )
        ]
        for loss in losses
    ]
    found = [{}, {}]
    for gradients in gradients_by_layer(model, batches, wanted, losses):
        for ours, theirs in zip(found, gradients, strict=True):
            ours.update({name: gradient.clone() for name, gradient in theirs.items()})
    for ours, theirs in zip(found, whole, strict=True):
        assert all(torch.equal(ours[name], theirs[at]) for at, name in enumerate(wanted))


def lethe(*arguments):
    """Run the command `lethe` in this process; return its exit code."""
    [command] = entry_points(group="console_scripts", name="lethe")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["lethe", *map(str, arguments)])
        try:
            return command.load()() or 0
        except SystemExit as end:
            return end.code or 0


def check_measured(model, world, results, point):
    """Compare MA and the perplexity of people's texts, by plain passes, with what the table says of the point."""
    [*_, row] = results.table[results.table["variant"] == point.partition("@")[0]].to_dict("records")
    accuracies = [memorization_accuracy(model, tokens_of(text), PREFIX) for text in lines(world / "forget.jsonl")]
    nll = [nll_after(model, tokens_of(text)[:11], PREFIX) for text in lines(world / "utility.jsonl")]
    assert sum(accuracies) / len(accuracies) == pytest.approx(row["ma"], rel=SAME_KIND)
    assert math.exp(sum(nll) / len(nll)) == pytest.approx(row["own_perplexity"], rel=1e-5)
    assert row["ma"] < results.table.query("variant == 'original'")["ma"].item(), "nothing was erased"


@pytest.mark.parametrize("point", ["emso@2", "gradient_difference@2", "adapted@2"])
def test_what_is_exported_is_what_was_measured(point, world, results, tmp_path):
    """A patch, a whole model, and a merged adapter."""
    assert lethe("export", f"methods:{point}", "--out", tmp_path / "model", "--results", world / "results") == 0
    exported = loaded(tmp_path / "model")
    check_measured(exported, world, results, point)
    assert digest_of(exported) == digest_of(results.model(point))


def test_an_adapter_makes_the_merged_model_of_the_original(world, results, original, tmp_path):
    """As peft reads it; without it, nothing moved but what it adapts."""
    arguments = ("adapted@2", "--adapter", "--out", tmp_path / "adapter", "--results", world / "results")
    assert lethe("export", *arguments) == 0
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # Of transformers, about peft.
        from peft import PeftModel

        merged = PeftModel.from_pretrained(original, tmp_path / "adapter").merge_and_unload()
    check_measured(merged, world, results, "adapted@2")
    kept, plain = weights_of(results.model("adapted@2")), weights_of(loaded(world / "gpt-neo"))
    for name, weight in merged.named_parameters():
        assert torch.equal(weight, kept[name]), name
        update = weight.detach() - plain[name]
        assert not update.any() or torch.linalg.matrix_rank(update, rtol=1e-4) == 2
