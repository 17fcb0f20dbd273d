"""Semantic similarity: whether two texts say the same, by the cosine of their embeddings."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.contracts import Checkpoint
from harness.toolkit import check_encoder, check_sentence_encoder, computing_device, judge_key, load_encoder

TEXTS_AT_ONCE = 64


class Embedder:
    """Texts to unit vectors: a sentence-transformers folder as it says, any other encoder by its pooler.

    SimCSE's published encoders carry no sentence-transformers files; loaded as such they would get
    mean pooling silently, and other numbers. Encoders run in bf16: cosines stay within 1e-3 of fp32's,
    in less than half the time.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._device = computing_device().type
        self.digest = judge_key(checkpoint, "bfloat16", self._device)
        is_sentence_folder = (Path(checkpoint.location) / "modules.json").is_file()
        self._encoder = self._sentence_encoder(checkpoint) if is_sentence_folder else None
        if self._encoder is None:
            from transformers import AutoTokenizer

            self._tokenizer = AutoTokenizer.from_pretrained(checkpoint.tokenizer)
            self._model = load_encoder(checkpoint).to(self._device)

    def _sentence_encoder(self, checkpoint: Checkpoint) -> Any:
        check_encoder(checkpoint)
        # Importing it announces which accelerator DeepSpeed found.
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            from sentence_transformers import SentenceTransformer

            encoder = SentenceTransformer(checkpoint.location, device=self._device, local_files_only=True)
        check_sentence_encoder(encoder, checkpoint)
        return encoder

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return N x D unit vectors; a text without words (empty, or whitespace) gets the zero vector."""
        wordless = np.array([not text.strip() for text in texts], dtype=bool)
        vectors_ND = self.encode([text if text.strip() else "." for text in texts])
        vectors_ND[wordless] = 0.0
        return vectors_ND

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], tokens: int | None = None) -> np.ndarray:
        """Return the encoder's own N x D unit vectors, a text without words being a text like any other.

        Args:
            texts: N of them.
            tokens: Read no more than so many word pieces of each, the encoder's own limit aside.
        """
        with torch.autocast(self._device, dtype=torch.bfloat16):
            if self._encoder is None:
                return self._pooled(list(texts), tokens)
            limit = self._encoder.max_seq_length
            self._encoder.max_seq_length = min(limit or tokens, tokens) if tokens else limit
            try:
                vectors_ND = self._encoder.encode(
                    list(texts), batch_size=TEXTS_AT_ONCE, normalize_embeddings=True, show_progress_bar=False
                )
            finally:
                self._encoder.max_seq_length = limit
        return np.array(vectors_ND, dtype=np.float32)

    def _pooled(self, texts: list[str], tokens: int | None) -> np.ndarray:
        parts = []
        longest = min(tokens, self._tokenizer.model_max_length) if tokens else None
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            batch = texts[start : start + TEXTS_AT_ONCE]
            inputs = self._tokenizer(batch, padding=True, truncation=True, max_length=longest, return_tensors="pt")
            pooled = self._model(**inputs.to(self._device)).pooler_output
            parts.append(torch.nn.functional.normalize(pooled.float(), dim=-1).cpu().numpy())
        return np.concatenate(parts)


def row_cosine(first_ND: np.ndarray, second_ND: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair of rows of unit vectors, in [-1, 1].

    A zero vector stands for a text without words: like another one of them (1), and unlike any text with
    words (0). Encoders drop whitespace, so that one such text is as another to them.

    Source: EMSO paper, section 4.1.3, SS.

    Example:
        >>> row_cosine(np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([[1.0, 0.0], [0.8, -0.6]])).tolist()
        [1.0, 0.0]
        >>> row_cosine(np.zeros((2, 2)), np.array([[0.0, 0.0], [0.6, 0.8]])).tolist()
        [1.0, 0.0]
    """
    both_wordless = ~(first_ND.any(axis=1) | second_ND.any(axis=1))
    return np.where(both_wordless, np.float32(1.0), (first_ND * second_ND).sum(axis=1))
