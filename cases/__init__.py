"""The questions: what is sharded how, what is computed, and what the right outcome is.

Nothing in this package may import torch, jax or pytest.
"""
