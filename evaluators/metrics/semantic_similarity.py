"""Semantic similarity: whether two texts say the same, by the cosine of their embeddings."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from harness.contracts import Checkpoint
from harness.toolkit.encoders import check_encoder, check_sentence_encoder, load_encoder


class Embedder:
    """Texts to unit vectors: a sentence-transformers folder as it says, any other encoder by its pooler.

    SimCSE's published encoders carry no sentence-transformers files; loaded as such they would get
    mean pooling silently, and other numbers. Encoders run in bf16: cosines stay within 1e-3 of fp32's,
    in less than half the time.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.digest = checkpoint.digest
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        is_sentence_folder = (Path(checkpoint.location) / "modules.json").is_file()
        self._encoder = self._sentence_encoder(checkpoint) if is_sentence_folder else None
        if self._encoder is None:
            from transformers import AutoTokenizer

            self._tokenizer = AutoTokenizer.from_pretrained(checkpoint.tokenizer)
            self._model = load_encoder(checkpoint).to(self._device)

    def _sentence_encoder(self, checkpoint: Checkpoint) -> object:
        check_encoder(checkpoint)
        # Importing it announces which accelerator DeepSpeed found.
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            from sentence_transformers import SentenceTransformer

            encoder = SentenceTransformer(checkpoint.location, device=self._device, local_files_only=True)
        check_sentence_encoder(encoder, checkpoint)
        return encoder

    @torch.inference_mode()
    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return N x D unit vectors; an empty text gets the zero vector, similar to nothing."""
        filled = [text if text.strip() else "." for text in texts]
        with torch.autocast(self._device, dtype=torch.bfloat16):
            vectors = self._encode(filled)
        empty = np.array([not text.strip() for text in texts])
        vectors[empty] = 0.0
        return vectors

    def _encode(self, texts: list[str]) -> np.ndarray:
        if self._encoder is not None:
            found = self._encoder.encode(  # type: ignore[attr-defined]
                texts, batch_size=64, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
            )
            return np.array(found, dtype=np.float32)
        parts = []
        for at in range(0, len(texts), 64):
            inputs = self._tokenizer(texts[at : at + 64], padding=True, truncation=True, return_tensors="pt")
            pooled = self._model(**inputs.to(self._device)).pooler_output
            parts.append(torch.nn.functional.normalize(pooled.float(), dim=-1).cpu().numpy())
        return np.concatenate(parts)


def row_cosine(first_ND: np.ndarray, second_ND: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair of rows of unit vectors (zero vectors: 0), in [-1, 1].

    Source: EMSO paper, section 4.1.3, SS.

    Example:
        >>> row_cosine(np.array([[1.0, 0.0], [0.6, 0.8]]), np.array([[1.0, 0.0], [0.8, -0.6]])).tolist()
        [1.0, 0.0]
    """
    return (first_ND * second_ND).sum(axis=1)
