"""PyTorch DTensor in real processes over gloo, one per rank."""
