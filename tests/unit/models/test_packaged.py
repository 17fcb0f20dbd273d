"""A real model from a package: its GGUF becomes a from_pretrained folder, once, and nothing half or changed is used."""

import gguf
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from harness.base.files import known_digest
from harness.errors import ModelError
from harness.models import resolving
from harness.models.loading import load_model, load_tokenizer

HEADS, WIDTH = 2, 8
NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
NAMES |= {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
NAMES |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"12ab", "12", "ab"]


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": HEADS}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), **sizes, tie_word_embeddings=True)).eval()


@pytest.fixture
def make_gguf(llama, tmp_path, monkeypatch):
    """Return a maker of the package smollm2-135m with this GGUF, as llama.cpp writes it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path)

    def make(architecture="llama", rules="smollm"):
        (tmp_path / "pocket").mkdir(exist_ok=True)
        (tmp_path / "pocket" / "__init__.py").write_text("raise ImportError('its own code is never run')")
        writer = gguf.GGUFWriter(file := tmp_path / "pocket" / "model.gguf", architecture)
        writer.add_context_length(64), writer.add_embedding_length(WIDTH), writer.add_block_count(2)
        writer.add_feed_forward_length(12), writer.add_head_count(HEADS), writer.add_head_count_kv(HEADS)
        writer.add_layer_norm_rms_eps(1e-6), writer.add_rope_freq_base(10000.0), writer.add_vocab_size(len(WORDS))
        writer.add_tokenizer_model("gpt2"), writer.add_tokenizer_pre(rules), writer.add_token_list(WORDS)
        writer.add_token_merges(["1 2", "a b"]), writer.add_bos_token_id(1), writer.add_eos_token_id(2)
        for name, weight in llama.model.named_parameters():
            number, kind, given = name.split(".")[1], name.split(".")[-2], weight.detach()
            if kind in ("q_proj", "k_proj"):
                given = given.view(HEADS, 2, WIDTH // HEADS // 2, WIDTH).transpose(1, 2).reshape(WIDTH, WIDTH)
            whole = {"embed_tokens": "token_embd", "norm": "output_norm"}.get(kind) or f"blk.{number}.{NAMES[kind]}"
            writer.add_tensor(f"{whole}.weight", given.numpy())
        writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
        monkeypatch.setitem(resolving.PACKAGES, "smollm2-135m", ("pocket", "model.gguf", known_digest(file)))
        return file

    return make


def test_it_has_the_weights_and_the_tokens_of_the_file_and_is_converted_once(make_gguf, llama, monkeypatch):
    make_gguf()
    found = resolving.resolve_model("smollm2-135m")
    tokens = torch.tensor([[1, 3, 4, 7, 5, 6]])
    assert torch.allclose(load_model(found)(tokens).logits, llama(tokens).logits, atol=1e-6)
    assert load_tokenizer(found)("12ab")["input_ids"] == [3, 4, 8], "each digit is a token of its own"
    monkeypatch.setattr(resolving, "_convert", lambda *of: pytest.fail("it is converted again"))
    assert resolving.resolve_model("smollm2-135m") == found


def test_what_cannot_be_used_is_said_in_a_sentence(make_gguf, tmp_path, monkeypatch):
    for options, told in (({"architecture": "abacus"}, "abacus"), ({"rules": "gpt-9"}, "only those of 'smollm'")):
        make_gguf(**options)
        with pytest.raises(ModelError, match=told):
            resolving.resolve_model("smollm2-135m")
    file = make_gguf()
    with monkeypatch.context() as patch:
        patch.setattr(resolving.shutil, "disk_usage", lambda folder: resolving.shutil._ntuple_diskusage(9, 8, 1))
        with pytest.raises(ModelError, match=r"needs 0 MB in .*: make room, or set HF_HOME"):
            resolving.resolve_model("smollm2-135m")
    assert not list((tmp_path / "home").rglob("*.safetensors"))
    (resolving.packaged_folder("smollm2-135m") / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(ModelError, match="is not what was converted"):
        resolving.packaged_folder("smollm2-135m")
    file.write_bytes(b"other")
    with pytest.raises(ModelError, match=r"is not the file that Lethe knows .*Install its package again: make real"):
        resolving.packaged_folder("smollm2-135m")
    monkeypatch.setitem(resolving.PACKAGES, "smollm2-135m", ("nowhere", "model.gguf", ""))
    with pytest.raises(ModelError, match="in a package that is not installed: make real"):
        resolving.packaged_folder("smollm2-135m")
