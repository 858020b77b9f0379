"""This torch, which is taken for 2.7.1: the adapter keeps to what the table says that had.

What torch itself says is that of the release that runs.
"""

from __future__ import annotations

import torch

torch.__version__ = torch.torch_version.TorchVersion("2.7.1")

from adapters.torch_dtensor.adapter import connect  # noqa: E402

__all__ = ["connect"]
