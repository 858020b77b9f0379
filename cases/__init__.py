"""What is asked of a framework? Meshes, layouts, programs, and the right outcome of each.

Nothing in this package may import torch, jax or pytest.
"""
