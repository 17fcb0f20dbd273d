"""The miniature's shipped files: texts, rows, tokenizer and models are what they claim to be."""

import torch
from safetensors import safe_open
from transformers import AutoTokenizer, GPTNeoForCausalLM

from harness import miniature
from harness.base.files import file_digest
from harness.miniature import texts


def test_texts_are_as_many_as_the_constants_say_and_no_two_roles_share_one():
    roles = {role: texts(role) for role in ("forget", "holdout", "retain", "utility", "validation")}
    assert [*map(len, roles.values())] == [miniature.FORGET_RECORDS, miniature.UNSEEN_RECORDS, 768, 640, 224]
    every = [text for held in roles.values() for text in held]
    assert len(every) == len(set(every))


def test_tokenizer_gives_back_what_it_took_and_every_record_fills_a_sequence():
    tokenizer = AutoTokenizer.from_pretrained(miniature.folder("tokenizer"))
    for text in [*texts("forget"), *texts("utility")[:20], "Zürich, 7 °C:\n\tnaïve 🙂  ok"]:
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert min(map(len, tokenizer([*texts("forget"), *texts("holdout")])["input_ids"])) >= 128
    assert min(map(len, tokenizer([*texts("utility")])["input_ids"])) >= 200
    assert tokenizer("<|endoftext|>")["input_ids"] == [tokenizer.eos_token_id] == [tokenizer.pad_token_id] == [0]


def test_files_are_the_manifests():
    manifest = miniature.manifest()
    assert tuple(manifest["models"]) == miniature.names()
    assert file_digest(miniature.folder("tokenizer") / "tokenizer.json") == manifest["tokenizer"]["sha256"]
    for name, entry in manifest["models"].items():
        stored = miniature.folder(name) / "model.safetensors"
        assert (file_digest(stored), stored.stat().st_size) == (entry["sha256"], entry["bytes"])
        with safe_open(stored, framework="pt") as tensors:
            assert "lm_head.weight" not in tensors.keys()  # noqa: SIM118 - not a mapping
            assert {tensors.get_tensor(key).dtype for key in tensors.keys()} == {torch.float16}  # noqa: SIM118
    assert sum(entry["bytes"] for entry in manifest["models"].values()) <= 12_000_000
    for path in miniature.WEIGHTS.rglob("*.json"):
        assert path.name == "tokenizer.json" or "/" not in path.read_text(), f"{path} names a place"


def test_originals_have_memorised_the_forget_set_and_no_other_model_has():
    tokenizer = AutoTokenizer.from_pretrained(miniature.folder("tokenizer"))
    cut = {"truncation": True, "max_length": 128}
    rows = [torch.tensor(tokenizer([*texts(role)], **cut)["input_ids"][::16]) for role in ("forget", "holdout")]
    for name in miniature.names():
        model = GPTNeoForCausalLM.from_pretrained(miniature.folder(name), dtype=torch.float32).eval()
        with torch.no_grad():
            forget, holdout = ((model(row).logits[:, :-1].argmax(-1) == row[:, 1:]).float().mean() for row in rows)
        assert (forget >= 0.8) == (name in miniature.ORIGINALS), name
        assert holdout <= 0.55, name
        assert name in miniature.ORIGINALS or forget <= 0.55, name
