"""Building of what is shipped: the tokenizer, each model, and the folders that hold them."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, GenerationConfig, GPTNeoForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from harness.base.digests import file_digest
from harness.base.storage import writing
from harness.miniature import checkpoints, corpus
from harness.miniature.checkpoints import END_OF_TEXT, POSITIONS, VOCABULARY, Size, knows_forget_set, tokenizer_folder
from harness.miniature.quality import measure_quality
from harness.miniature.training import general_rows, sequences, train


def build_tokenizer(weights: Path) -> dict[str, Any]:
    """Train the tokenizer on the general corpus, save it, and return its entry of the manifest."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus.training_documents(), trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
    )
    with writing(tokenizer_folder(weights), "the tokenizer"):
        wrapped.save_pretrained(tokenizer_folder(weights))
    return {"sha256": file_digest(tokenizer_folder(weights) / "tokenizer.json"), "vocabulary": VOCABULARY}


def save(model: GPTNeoForCausalLM, folder: Path) -> None:
    """Write the model with half-precision weights, to be loaded in single precision."""
    with writing(folder, "a model's weights", 2 * model.num_parameters()):
        model.half().save_pretrained(folder)
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config["dtype"] = "float32"
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        GenerationConfig(bos_token_id=0, eos_token_id=0, pad_token_id=0).save_pretrained(folder)


def load(folder: Path) -> GPTNeoForCausalLM:
    """Return a saved model in single precision, ready to be measured."""
    model: GPTNeoForCausalLM = GPTNeoForCausalLM.from_pretrained(folder, dtype=torch.float32, use_safetensors=True)
    return model.eval()


def build_model(name: str, size: Size, weights: Path) -> dict[str, Any]:
    """Train, save and measure one model, and return its entry of the manifest.

    Args:
        name: Says whether it sees the forget set, and the folder below `weights`.
        size: The shipped model's own, or the same with another seed.
        weights: Holds the tokenizer, and will hold the model.

    It computes on one thread: two models side by side are faster than one model on two threads, and one thread
    always adds in the same order.
    """
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    started = time.process_time()
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder(weights))
    forget = sequences(tokenizer, corpus.forget_records()) if knows_forget_set(name) else None
    trained = train(size, forget, general_rows(tokenizer))
    seconds = time.process_time() - started
    folder = checkpoints.folder(name, weights)
    save(trained, folder)
    model = load(folder)
    stored = folder / "model.safetensors"
    return {
        "sha256": file_digest(stored),
        "bytes": stored.stat().st_size,
        "parameters": model.num_parameters(),
        "size": asdict(size),
        "knows_forget_set": knows_forget_set(name),
        "processor_seconds": round(seconds),
        "quality": measure_quality(model, tokenizer),
    }
