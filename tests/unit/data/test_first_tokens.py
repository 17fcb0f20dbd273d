"""A long text is cut before it is tokenised: the tokens that are used are those of the whole, by any tokenizer."""

import random

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from harness.data.first_tokens import MOST_CHARACTERS, first_tokens, is_long
from harness.data.rows import read_rows
from harness.errors import DataError
from harness.specs import Source

WORDS = (
    "the form was signed by a clerk of Nötre-Dame who never reads what 1234 others wrote; isn't it naïve? 你好 世界 🙂"
)


def english(choice, length):
    words = WORDS.split()
    return " ".join(choice.choice(words) for _ in range(length // 4))[:length]


TEXTS = {
    "words": english,
    "one word": lambda choice, length: "a" * length,
    "letters": lambda choice, length: "".join(choice.choices("abcdefgh", k=length)),
    "blanks": lambda choice, length: "start" + " " * length,
    "lines": lambda choice, length: "".join(
        choice.choice(("\n", "\n\n", " x", "\t", "end ")) for _ in range(length // 2)
    ),
    "long words": lambda choice, length: " ".join("ab" * choice.choice((1, 40, 60, 200)) for _ in range(length // 80)),
    "accents": lambda choice, length: "e\u0301\u0302" * (length // 3),
    "signs": lambda choice, length: "".join(chr(choice.randrange(0x20, 0x3000)) for _ in range(length)),
}


def trained(model, trainer, normalizer=None, pre_tokenizer=None):
    tokenizer = Tokenizer(model)
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    choice = random.Random(0)
    lines = [make(choice, 300) for kind, make in TEXTS.items() for _ in range(5) if kind != "signs"]
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def byte_level():
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer = trained(models.BPE(), trainer, pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def whole_text_pairs():
    """As Llama's: the text is one word, so that every pair of it may be merged."""
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(vocab_size=500, show_progress=False, special_tokens=["<unk>"])
    return trained(models.BPE(unk_token="<unk>", fuse_unk=True), trainer, normalizer)


def unigram():
    trainer = trainers.UnigramTrainer(vocab_size=300, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    return trained(models.Unigram(), trainer, normalizers.NFKC(), pre_tokenizers.Metaspace())


def word_pieces():
    trainer = trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[UNK]"], show_progress=False)
    return trained(
        models.WordPiece(unk_token="[UNK]"), trainer, normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    )


MAKERS = (byte_level, whole_text_pairs, unigram, word_pieces)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_the_tokens_are_those_of_the_whole_text(make):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=make())
    choice = random.Random(1)
    decided = 0
    for kind, text_of in TEXTS.items():
        for tokens in (1, 16, 100):
            text = text_of(choice, 40_000)
            whole = tokenizer(text)["input_ids"][:tokens]
            assert is_long(text, tokens)
            assert first_tokens(tokenizer, text, tokens) == whole, (kind, tokens)
            decided += len(whole) == tokens
    assert decided >= 12, "most texts have so many tokens"


def test_a_cut_that_changes_the_token_before_it_is_noticed():
    """The opposite: without spare tokens the word that is cut in two would be used."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=word_pieces())
    text = "ab" * 60 + " " + "the form " * 3000
    assert tokenizer("ab" * 40)["input_ids"] != tokenizer(text)["input_ids"][:1]
    assert first_tokens(tokenizer, text, 1) == tokenizer(text)["input_ids"][:1]


def test_most_of_a_huge_line_is_never_tokenised(tokenizer, tmp_path):
    seen = []

    class Watched:
        name_or_path = "watched"

        def __call__(self, texts, **settings):
            seen.extend(map(len, texts))
            return tokenizer(texts, **settings)

    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "' + "one more word " * 1_000_000 + '"}\n')
    source = Source(source="jsonl", path=str(file))
    [row] = read_rows(source, "forget", Watched(), 256, 8, 16)
    assert row.tolist() == tokenizer("one more word one")["input_ids"][:16]
    assert max(seen) <= 20_000


def test_a_text_without_tokens_is_refused_before_all_of_it_is_read(tokenizer, tmp_path):
    class Blind:
        name_or_path = "blind"

        def __call__(self, texts, **settings):
            assert max(map(len, texts)) <= MOST_CHARACTERS
            return {"input_ids": [[] for _ in texts], "special_tokens_mask": [0 for _ in texts]}

    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "' + "x" * (MOST_CHARACTERS + 1) + '"}\n')
    with pytest.raises(
        DataError, match=r"line 1 is of 2,000,001 characters, and more than 2,000,000 of them are no tok"
    ):
        read_rows(Source(source="jsonl", path=str(file)), "forget", Blind(), 256, 8, 16)
