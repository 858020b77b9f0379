"""Toy adapters: fake frameworks in NumPy, in real worker processes, right or wrong on purpose."""
