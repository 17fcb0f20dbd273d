"""Tiny checkpoints of random weights and texts of their words, as files that any user could have written."""

import json
import random
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

SPECIAL = ("<unk>", "<s>", "</s>")
WORDS = tuple(f"{first}{second}" for first in "bdfgklmnprstvz" for second in ("a", "e", "o", "u"))
"""A token each; no number that is measured depends on how they are spelt."""
IDS = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
BOS, EOS = IDS["<s>"], IDS["</s>"]

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = SIZES | {"num_key_value_heads": 2, "max_position_embeddings": 128}
NEO = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}
NEO |= {"window_size": 5, "max_position_embeddings": 128}
CAPPED = {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 5}
CAPPED |= {"attn_logit_softcapping": 1.0, "final_logit_softcapping": 8.0}
FAMILIES = {
    "gpt-neo": ("GPTNeo", NEO),
    "llama-bos": ("Llama", GROUPED),
    "mistral-window": ("Mistral", GROUPED | {"sliding_window": 5}),
    "gemma2-capped": ("Gemma2", GROUPED | CAPPED),
}
"""The four that decode differently: local attention, a start of text, a cache that forgets, capped logits."""


def make_checkpoint(folder, family="gpt-neo", seed=0, scale=0.3):
    """Write a causal LM as `from_pretrained` reads it, of weights so large that its choices vary; return its folder."""
    name, sizes = FAMILIES[family]
    about = {"vocab_size": len(IDS), "initializer_range": scale, "tie_word_embeddings": family == "gpt-neo"}
    about |= {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": EOS}
    torch.manual_seed(seed)
    config = getattr(transformers, f"{name}Config")(**about, **sizes)
    getattr(transformers, f"{name}ForCausalLM")(config).save_pretrained(folder)
    word_tokenizer(starts=family == "llama-bos").save_pretrained(folder)
    return folder


def make_encoder(folder, seed=0):
    """Write a tiny encoder, a judge of similarity by its pooler, whose vectors differ; return the folder."""
    sizes = SIZES | {"vocab_size": len(IDS), "max_position_embeddings": 128, "pad_token_id": 0}
    torch.manual_seed(seed)
    transformers.BertModel(transformers.BertConfig(**sizes, initializer_range=0.3)).save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    return folder


def make_byte_checkpoint(folder, extra=0):
    """Write a GPT-Neo that reads any text, a token a byte; `extra` tokens more are in no text. Return its folder."""
    sizes = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "attention_types": [[["global"], 2]]}
    sizes |= {"vocab_size": 256, "max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 0}
    transformers.GPTNeoForCausalLM(transformers.GPTNeoConfig(**sizes)).save_pretrained(folder)
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(f"unused-{number}" for number in range(extra))]
    bytes_alone = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(alphabet)}, merges=[]))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_alone.decoder = decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=bytes_alone).save_pretrained(folder)
    return folder


def word_tokenizer(*, starts=False):
    """Return a tokenizer of one token a word; with `starts`, `<s>` stands before every text, as Llama's does."""
    words = Tokenizer(models.WordLevel(vocab=IDS, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if starts:
        words.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", BOS)])
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=128, **names)


def random_texts(count, words, seed):
    """Return so many texts of so many random words."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=words)) for _ in range(count)]


def write_lines(file, texts):
    """Write a text a line, as `source: jsonl` reads them; return the file."""
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return file


def kind_of_cpu():
    """Return what decides in which order numbers are added: the processor, what torch uses of it, and which torch."""
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        lines = []
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    model = [fields[name] for name in ("vendor_id", "cpu family", "model") if name in fields]
    return " ".join([*model, torch.backends.cpu.get_cpu_capability(), "torch", torch.__version__])
