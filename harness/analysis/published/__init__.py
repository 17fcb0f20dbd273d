"""A published table beside ours."""
