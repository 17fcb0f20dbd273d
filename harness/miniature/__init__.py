"""The embedded default: an invented corpus and a GPT-Neo family that has memorised part of it."""
