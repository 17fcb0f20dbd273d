"""Decoding: greedy and sampled, of any causal LM, as fast as its cache allows and exact where it does not."""
