"""A head's attention as the model computes it, against q·k from its weights by hand, and `lethe figure attention`."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, MambaConfig, MambaForCausalLM

from harness import cli
from harness.contracts import Checkpoint
from harness.errors import ModelError
from harness.models.attention import Head, attention_weights, head_of_block, visible_keys
from harness.models.blocks import blocks
from harness.models.loading import architecture, load_model
from harness.models.patch import save_patch
from harness.models.resolving import resolve_model
from harness.reporting.figures.attention import attention_figure

GPT_NEO = {
    "model_type": "gpt_neo",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "attention_layers": ["global", "local"],
    "window_size": 8,
}
LLAMA = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
GLOBAL, LOCAL = Head(0, 1, window=None), Head(1, 2, window=8)
TOKENS = [int(token) for token in np.random.default_rng(0).integers(0, 60, 20)]
PRIVATE = "Zq's PIN"


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(layers=2, window=8)


def by_hand(model, head, window):
    """Walk through the keys one by one: GPT-Neo has no scaling, and a window counts the query's own token."""
    layer = model.transformer.h[head.layer]
    attention = layer.attn.attention
    width = attention.head_dim
    rows = slice(head.index * width, (head.index + 1) * width)
    with torch.no_grad():
        below = model(torch.tensor([TOKENS]), output_hidden_states=True).hidden_states[head.layer][0]
        normalised = layer.ln_1(below)
        queries = normalised @ attention.q_proj.weight[rows].T
        keys = normalised @ attention.k_proj.weight[rows].T
    weights = torch.zeros(len(TOKENS), len(TOKENS))
    for query in range(len(TOKENS)):
        seen = [key for key in range(query + 1) if query - key < window]
        products = torch.tensor([float(queries[query] @ keys[key]) for key in seen])
        weights[query, seen] = products.softmax(0)
    return weights


@pytest.mark.parametrize(("head", "window"), [(GLOBAL, 10**9), (LOCAL, 8)])
def test_weights_are_the_softmax_of_query_times_key(model, head, window):
    weights = attention_weights(model, TOKENS, head)
    assert torch.allclose(weights, by_hand(model, head, window), atol=1e-5)
    other = Head(head.layer, head.index - 1, head.window)
    assert not torch.allclose(weights, by_hand(model, other, window), atol=1e-2)


@pytest.mark.parametrize("head", [GLOBAL, LOCAL])
def test_rows_sum_to_one_over_the_keys_that_they_may_see(model, head):
    weights, visible = attention_weights(model, TOKENS, head), visible_keys(len(TOKENS), head)
    assert torch.allclose((weights * visible).sum(dim=1), torch.ones(len(TOKENS)), atol=1e-6)
    assert (weights[~visible] == 0).all()
    assert (weights.triu(1) == 0).all()
    mask = model.transformer.h[head.layer].attn.attention.bias[0, 0, : len(TOKENS), : len(TOKENS)]
    assert torch.equal(visible, mask), "as the model itself has it"


def test_a_local_layer_looks_back_one_window_and_a_global_one_to_the_start(model):
    assert attention_weights(model, TOKENS, LOCAL)[-1].count_nonzero() == 8
    assert attention_weights(model, TOKENS, GLOBAL)[-1].count_nonzero() == len(TOKENS)


def test_they_are_what_the_model_itself_reports_and_it_is_left_as_it_was(model):
    attentions = model(torch.tensor([TOKENS]), output_attentions=True).attentions
    for head in (GLOBAL, LOCAL):
        assert torch.equal(attention_weights(model, TOKENS, head), attentions[head.layer][0, head.index])
        assert not model.transformer.h[head.layer].attn.attention._forward_hooks


def test_a_model_that_keeps_its_weights_to_itself_is_named(model, monkeypatch):
    attention_module = model.transformer.h[GLOBAL.layer].attn.attention
    compute = attention_module.forward
    monkeypatch.setattr(attention_module, "forward", lambda *given, **options: (compute(*given, **options)[0], None))
    with pytest.raises(ModelError, match="attn_implementation='eager'"):
        attention_weights(model, TOKENS, GLOBAL)


def test_every_matrix_of_a_head_names_it():
    assert {head_of_block(GPT_NEO, f"L1.{matrix}.H2") for matrix in ("W_q", "W_k", "W_v", "W_o")} == {LOCAL}
    assert head_of_block(GPT_NEO, "L0.W_v.H1") == GLOBAL


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (
            "L1.C_fc",
            "L1.C_fc is a matrix of an MLP and belongs to no attention head. This model has W_q, W_k, W_v, W_o",
        ),
        ("L0.W_v.H4", "no block of this model is called 'L0.W_v.H4'. Did you mean 'L0.W_v.H"),
        ("L2.W_q.H0", "of the heads H0 to H3 in each of the layers L0 to L1"),
        ("L2.C_fc", "no block of this model is called 'L2.C_fc'"),
        ("L0.Wv.H1", "Did you mean 'L0.W_v.H1'?"),
        ("L00.W_v.H1", "no block of this model is called 'L00.W_v.H1'"),
        ("", "no block of this model is called ''. This model has"),
    ],
)
def test_a_block_that_is_not_there_is_answered_with_those_that_are(block, words):
    with pytest.raises(ModelError) as told:
        head_of_block(GPT_NEO, block)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("L0.W_k.G1", "L0.W_k.G1 is shared by the heads H2 to H3: name one of them, L0.W_q.H2 for instance."),
        ("L1.C_gate", "L1.C_gate is a matrix of an MLP and belongs to no attention head. This model has W_q, W_o of"),
        ("L0.W_k.G2", "no block of this model is called 'L0.W_k.G2'."),
        ("L0.W_k.H1", "no block of this model is called 'L0.W_k.H1'. Did you mean 'L0.W_"),
    ],
)
def test_what_heads_share_names_none_of_them(block, words):
    with pytest.raises(ModelError) as told:
        head_of_block(LLAMA, block)
    assert words in str(told.value)
    assert head_of_block(LLAMA, "L1.W_o.H3") == Head(1, 3, window=None)
    alone = LLAMA | {"num_key_value_heads": 4}
    assert head_of_block(alone, "L1.W_v.H3") == Head(1, 3, window=None)


def rotated(vectors_TD, theta=10000.0):
    """Turn each pair (d, d + half) of every token's vector by its place times a frequency, one by one."""
    half = vectors_TD.shape[1] // 2
    turned = torch.empty_like(vectors_TD)
    for place, vector in enumerate(vectors_TD):
        for pair in range(half):
            angle = torch.tensor(place * theta ** (-pair / half))
            a, b = vector[pair], vector[pair + half]
            turned[place, pair] = a * angle.cos() - b * angle.sin()
            turned[place, pair + half] = b * angle.cos() + a * angle.sin()
    return turned


@pytest.mark.parametrize(
    ("model_type", "changes", "window"),
    [
        ("llama", {"num_key_value_heads": 2}, None),
        ("mistral", {"num_key_value_heads": 2, "sliding_window": 5}, 5),
        ("gpt_neox", {"rotary_pct": 1.0}, None),
    ],
)
def test_rotary_heads_attend_as_their_blocks_say(model_type, changes, window, tmp_path):
    """q and k from the blocks' own slices, rotated by hand; a group's k serves all of its heads."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, vocab_size=60, initializer_range=0.3, **sizes, **changes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model.save_pretrained(tmp_path)
    shapes = architecture(Checkpoint("tiny", str(tmp_path), str(tmp_path), ""))
    head = head_of_block(shapes, "L1.W_q.H3")
    assert head == Head(1, 3, window)
    key = "L1.W_k.H3" if model_type == "gpt_neox" else "L1.W_k.G1"
    with torch.no_grad():
        outputs = model(torch.tensor([TOKENS]), output_hidden_states=True, output_attentions=True)
        normalised = model.base_model.layers[1].input_layernorm(outputs.hidden_states[1][0])
        by_name = {block.name: block.of(model.get_parameter(block.parameter)) for block in blocks(model)}
        queries, keys = (rotated(normalised @ by_name[name].T) for name in ("L1.W_q.H3", key))
        visible = visible_keys(len(TOKENS), head)
        expected = (queries @ keys.T / 8**0.5).masked_fill(~visible, -torch.inf).softmax(-1)
    weights = attention_weights(model, TOKENS, head)
    assert torch.allclose(weights, expected, atol=1e-5)
    assert torch.equal(weights, outputs.attentions[1][0, 3])
    assert torch.equal(weights != 0, visible)


def maps(figure):
    return [ax.images[0].get_array() for ax in figure.axes if ax.images and ax.get_ylabel() == "query token"]


def test_the_picture_is_written_where_it_was_asked_for(run, tmp_path):
    assert run() == (0, f"{tmp_path}/figures/picture.png\n", "")
    assert (tmp_path / "figures" / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_three_maps_are_before_after_and_their_difference():
    visible = np.tril(np.ones((2, 2), dtype=bool))
    before, after = np.array([[1, 0], [0.25, 0.75]]), np.array([[1, 0], [0.5, 0.5]])
    figure = attention_figure("title", [" a", "$\n中"], visible, before, after)
    drawn = maps(figure)
    assert np.allclose(drawn[0].filled(-9), [[1, -9], [0.25, 0.75]])
    assert np.allclose(drawn[1].filled(-9), [[1, -9], [0.5, 0.5]])
    assert np.allclose(drawn[2].filled(-9), [[0, -9], [0.25, -0.25]])
    titles = [ax.get_title(loc="left") for ax in figure.axes[:3]]
    assert titles == ["before erasing", "after erasing", "after − before: 0.25 at most"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["·a", r"\$↵□"]
    assert len(maps(attention_figure("title", ["a", "b"], visible, before))) == 1


def test_of_a_long_text_the_labels_thin_out_and_stay_at_their_tokens():
    tokens = [str(number) for number in range(200)]
    axes = attention_figure("t", tokens, np.tril(np.ones((200, 200), dtype=bool)), np.eye(200)).axes[0]
    labels = [int(label.get_text()) for label in axes.get_xticklabels()]
    assert labels == list(axes.get_xticks())
    assert 40 < len(labels) < 200


@pytest.fixture
def run(world, tmp_path, capsys):
    """Return a runner of the command on MODEL: its exit code and what it printed to stdout and to stderr."""

    def go(*arguments, model="MODEL", block="L1.W_v.H0", text=PRIVATE):
        out = tmp_path / "figures" / "picture.png"
        spoken = ("--text", text) if text is not None else ()
        given = ("--model", str(world / model), "--block", block, *spoken, "--out", str(out), *map(str, arguments))
        code = cli.main(["figure", "attention", *given])
        printed = capsys.readouterr()
        assert PRIVATE not in printed.out + printed.err
        assert out.exists() == (code == 0)
        return code, printed.out, printed.err

    return go


@pytest.fixture
def unrendered(monkeypatch):
    """Leave out the seconds that the pictures themselves take."""
    monkeypatch.setattr("harness.reporting.figures.style.rendered", lambda figure, kind: kind.encode())


def changed(world, tmp_path, block):
    """Return a patch of MODEL in which one block has other numbers."""
    checkpoint = resolve_model(str(world / "MODEL"))
    model = load_model(checkpoint)
    [found] = [each for each in blocks(model) if each.name == block]
    with torch.no_grad():
        found.of(model.get_parameter(found.parameter)).add_(1.0)
    folder = tmp_path / f"patch-{block}"
    folder.mkdir()
    save_patch(model, [block], checkpoint.digest, folder / "patch.safetensors")
    model.save_pretrained(tmp_path / f"whole-{block}")
    return folder, tmp_path / f"whole-{block}"


def test_a_patch_of_what_comes_before_the_weights_moves_them(run, unrendered, world, tmp_path):
    for block in ("L1.W_q.H0", "L0.C_fc"):
        patch, whole = changed(world, tmp_path, block)
        by_patch = run("--patch", patch)
        assert by_patch[0] == 0
        assert by_patch[1].startswith("Erasing changed an attention weight by at most ")
        assert run("--erased", whole) == by_patch, "the same model, kept whole"


def test_a_patch_of_what_comes_after_them_does_not(run, unrendered, world, tmp_path):
    for block in ("L1.W_v.H0", "L1.C_proj", "L1.W_q.H1"):
        code, out, _ = run("--patch", changed(world, tmp_path, block)[0])
        assert code == 0
        assert out.startswith("Erasing changed no attention weight here.")


def test_a_text_file_is_read_without_its_last_line_end(run, world, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "harness.reporting.figures.attention.attention_figure", lambda *given: seen.append(given) or FIGURE
    )
    (tmp_path / "text").write_text("ab\n\n")
    assert run("--text-file", tmp_path / "text", text=None)[0] == 0
    title, tokens, visible, weights, after = seen[0]
    assert tokens == ["a", "b", "\n"]
    assert title == "MODEL: attention weights of layer 1, head 0 (local, the last 8 tokens)"
    assert visible.shape == weights.shape == (3, 3)
    assert after is None


FIGURE = attention_figure("t", ["a"], np.ones((1, 1), dtype=bool), np.ones((1, 1)))


def test_what_cannot_be_drawn_is_said_without_the_text(run, world, tmp_path):
    (tmp_path / "latin").write_bytes(b"\xe9")
    other, _ = changed(world, tmp_path, "L0.W_q.H0")
    faults = {
        "block": (run(block="L9.W_v.H0"), "no block of this model is called 'L9.W_v.H0'."),
        "long": (run(text="a" * 513), "the text is 513 tokens long, and"),
        "reads": (run(text="a" * 513), "reads at most 512."),
        "empty": (run(text=""), "the text is empty"),
        "latin": (run("--text-file", tmp_path / "latin", text=None), "is not UTF-8"),
        "file": (run("--text-file", tmp_path / "none", text=None), "cannot be read: there is no such file"),
        "model": (run(model="NONE"), "is not a folder, nor a hub id"),
        "patch": (run("--patch", tmp_path / "none"), "no patch at"),
        "erased": (run("--erased", tmp_path / "none"), "no erased model at"),
        "patched": (run("--erased", other), "holds a patch: name it with --patch"),
        "other": (run("--patch", other, model="OTHER"), "is a patch of the model with digest"),
        "kind": (run("--out", tmp_path / "a.gif"), "name it FILE.png, FILE.pdf or FILE.svg"),
    }
    for (code, out, err), words in faults.values():
        assert (code, out) == (2, "")
        assert words in err


def test_an_erased_model_of_another_shape_is_refused(run, make_model, tokenizer, tmp_path):
    make_model(0, layers=4, hidden=8, heads=2, vocabulary=256, positions=512).save_pretrained(tmp_path / "deep")
    code, _, err = run("--erased", tmp_path / "deep")
    assert code == 2
    assert "differs in num_hidden_layers (4 there, 2 here), attention_layers" in err


def test_a_damaged_patch_is_refused(run, world, tmp_path):
    patch, _ = changed(world, tmp_path, "L0.W_q.H0")
    about = {"kind": "erased", "key": ["k"], "files": {"patch.safetensors": "0" * 64}}
    (patch / "about.json").write_text(json.dumps(about))
    code, _, err = run("--patch", patch)
    assert code == 2
    assert "is damaged (patch.safetensors is not what was written). Run its sweep again, which erases again." in err


def test_a_model_without_heads_is_refused(run, world, tokenizer, tmp_path):
    mamba = MambaConfig(vocab_size=256, hidden_size=8, num_hidden_layers=1, state_size=2, intermediate_size=16)
    MambaForCausalLM(mamba).save_pretrained(tmp_path / "mamba")
    tokenizer.save_pretrained(tmp_path / "mamba")
    code, _, err = run(model=tmp_path / "mamba")
    assert code == 2
    assert "blocks are defined for models of the types " in err
    assert "and this is a 'mamba'." in err


def test_a_tokenizer_of_another_model_is_named(run, world, make_model, tokenizer, tmp_path):
    make_model(0, layers=2, hidden=8, heads=2, vocabulary=40).save_pretrained(tmp_path / "small")
    code, _, err = run("--tokenizer", world / "MODEL", model=tmp_path / "small")
    assert code == 2
    assert "knows 0 to 39: the tokenizer is another model's." in err
