"""The answers: what the NumPy reference, PyTorch DTensor and JAX do with a question.

Nothing in this package may import pytest, the divergence ledger or an expectation.
"""
