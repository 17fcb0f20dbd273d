"""The methods: one file is one method, and the file's name is its name in a sweep.

To add one, add a file with one frozen dataclass that derives from `harness.contracts.Method`;
`docs/add-a-method.md` explains it. Nothing else is edited.
"""
