"""The methods: one file each, named as in a sweep. See `docs/add-a-method.md`."""
