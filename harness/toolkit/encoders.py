"""Encoders of texts: loaded with every weight from their files, or refused."""

from __future__ import annotations

from harness.models.loading import check_encoder, check_sentence_encoder, load_encoder

__all__ = ["check_encoder", "check_sentence_encoder", "load_encoder"]
