"""Semantic similarity."""

import contextlib
import copy
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness import toolkit
from harness.contracts import Checkpoint

TEXTS_AT_ONCE = 64


class Embedder:
    """Texts to unit vectors: by a sentence-transformers folder, or by any other encoder's pooler.

    SimCSE's encoders have no sentence-transformers files and would get mean pooling.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._device = toolkit.computing_device().type
        self.digest = toolkit.judge_key(checkpoint, self._device)
        is_sentence_folder = (Path(checkpoint.location) / "modules.json").is_file()
        self._encoder = self._sentence_encoder(checkpoint) if is_sentence_folder else None
        if self._encoder is None:
            self._tokenizer = toolkit.load_tokenizer(checkpoint)
            self._model = toolkit.load_encoder(checkpoint).to(self._device)

    def _sentence_encoder(self, checkpoint: Checkpoint) -> Any:
        toolkit.check_encoder(checkpoint)
        # Importing it announces which accelerator DeepSpeed found.
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            from sentence_transformers import SentenceTransformer

            encoder = SentenceTransformer(checkpoint.location, device=self._device, local_files_only=True)
        toolkit.check_sentence_encoder(encoder, checkpoint)
        if (Path(checkpoint.tokenizer) / "tokenizer.json").is_file():
            encoder.tokenizer._tokenizer = copy.deepcopy(toolkit.load_tokenizer(checkpoint).backend_tokenizer)
        return encoder

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return N x D unit vectors; a text without words gets the zero vector.

        Longer texts get the mean of their windows' vectors, weighted by word pieces.
        """
        windows_by_text = [self._windows(text if text.strip() else ".") for text in texts]
        vectors_WD = self.encode([text for windows in windows_by_text for text, _ in windows])
        vectors_ND = np.empty((len(texts), vectors_WD.shape[1]), dtype=np.float32)
        first = 0
        for number, (text, windows) in enumerate(zip(texts, windows_by_text, strict=True)):
            own_WD = vectors_WD[first : first + len(windows)]
            first += len(windows)
            vectors_ND[number] = own_WD[0] if len(windows) == 1 else _mean_direction(own_WD, [n for _, n in windows])
            if not text.strip():
                vectors_ND[number] = 0.0
        return vectors_ND

    def _windows(self, text: str) -> list[tuple[str, int]]:
        tokenizer = self._tokenizer if self._encoder is None else self._encoder.tokenizer
        longest = tokenizer.model_max_length if self._encoder is None else self._encoder.max_seq_length
        room = (longest or sys.maxsize) - tokenizer.num_special_tokens_to_add()
        if len(text.encode()) <= room:  # A piece has at least one byte.
            return [(text, len(text))]
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        starts = [start for start, _ in encoded["offset_mapping"]]
        parts, first = [], 0
        while len(starts) - first > room:
            end = first + room
            between_words = (at for at in range(end, first, -1) if text[starts[at] - 1].isspace())
            end = next(between_words, end)
            parts.append((text[starts[first] : starts[end]], end - first))
            first = end
        return [*parts, (text[starts[first] if parts else 0 :], len(starts) - first)]

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], tokens: int | None = None) -> np.ndarray:
        """Return the encoder's N x D unit vectors of at most `tokens` word pieces each."""
        if self._encoder is None:
            return self._pooled(list(texts), tokens)
        limit = self._encoder.max_seq_length
        self._encoder.max_seq_length = min(limit or tokens, tokens) if tokens else limit
        try:
            vectors_ND: np.ndarray = self._encoder.encode(
                list(texts), batch_size=TEXTS_AT_ONCE, normalize_embeddings=True, show_progress_bar=False
            )
            return vectors_ND
        finally:
            self._encoder.max_seq_length = limit

    def _pooled(self, texts: list[str], tokens: int | None) -> np.ndarray:
        parts = []
        longest = min(tokens, self._tokenizer.model_max_length) if tokens else None
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            batch = texts[start : start + TEXTS_AT_ONCE]
            inputs = self._tokenizer(batch, padding=True, truncation=True, max_length=longest, return_tensors="pt")
            pooled = self._model(**inputs.to(self._device)).pooler_output
            parts.append(torch.nn.functional.normalize(pooled.float(), dim=-1).cpu().numpy())
        return np.concatenate(parts)


def _mean_direction(vectors_WD: np.ndarray, weights: Sequence[int]) -> np.ndarray:
    mean_D: np.ndarray = np.average(vectors_WD, axis=0, weights=weights)
    return mean_D / np.linalg.norm(mean_D).item()


def row_cosine(first_ND: np.ndarray, second_ND: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair of rows of unit vectors, in [-1, 1].

    Zero vectors, of texts without words, are alike (1), and unlike any other (0).

    Source: EMSO paper, section 4.1.3, SS.

    Example:
        >>> row_cosine(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[0.8, -0.6], [0.0, 0.0]])).tolist()
        [0.8, 1.0]
    """
    both_wordless = ~(first_ND.any(axis=1) | second_ND.any(axis=1))
    return np.where(both_wordless, np.float32(1.0), (first_ND * second_ND).sum(axis=1))
