"""The evaluators: one file is one evaluator, and the file's name is its name in a sweep.

The formulas that they report lie below, in `metrics/`: tensors, tokens or strings in, numbers out.
To add one, add a file with one frozen dataclass that derives from `harness.contracts.Evaluator`.
"""
