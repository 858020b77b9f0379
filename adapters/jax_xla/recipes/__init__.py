"""Recipes in JAX: pure functions, shardings on data, parameters and activations, one jit."""
