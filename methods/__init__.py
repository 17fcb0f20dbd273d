"""The methods, one file each. See `docs/add-a-method.md`."""
