"""Triton kernels, each with the signature of the op it replaces. Never required: see `ops._dispatch`."""
