"""Which ops draw random numbers? Random arrays, a parameter's initial values, dropout.

Each framework has its own numbers. A row gives shapes and dtypes. It also gives relations between
two draws, such as equality or no common element. Refuses to know frameworks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cases.ops import labels
from cases.ops.op import SUM_AVG, Labels, Op, Params, Shape, Value, check_floating, widen

# How a seed is set: in every process, with a framework's function for a mesh, or in a generator
# that is passed to the op.
SEEDINGS = ("process", "mesh", "generator")
# JAX's generators of keys.
GENERATORS = (
    "threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg", "unsafe_rbg",
)  # fmt: skip

# Parameters of all ops. `draw`: the number of earlier draws from this seed.
_SEEDED = ("draw", "seeding")


def _numbers(seed: int, draw: int, stage: int = 0) -> np.random.Generator:
    return np.random.default_rng((seed, draw, stage))


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Value:
    return rng.random(shape).astype(dtype)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Value:
    return rng.standard_normal(shape).astype(dtype)


def _array(draws: Any) -> Any:
    def meaning(shape: list[int], seed: int, draw: int = 0, **how: Any) -> Value:
        made: Value = draws(_numbers(seed, draw), tuple(shape), np.float32)
        return made

    return meaning


def _inplace(draws: Any) -> Any:
    """Uses only shape and dtype of ``x``. ``distinct``: each index of dim 0 has its own seed."""

    def meaning(
        x: Value, seed: int, draw: int = 0, distinct: list[str] | None = None, **how: Any
    ) -> Value:
        check_floating(x)
        if distinct is None:
            made: Value = draws(_numbers(seed, draw), x.shape, x.dtype)
            return made
        if not x.ndim:
            raise ValueError("the distinct axes need a dim 0 to split")
        stages = [draws(_numbers(seed, draw, i), x.shape[1:], x.dtype) for i in range(len(x))]
        return np.stack(stages) if stages else np.zeros(x.shape, x.dtype)

    return meaning


def _dropout(x: Value, p: float, seed: int, draw: int = 0, **how: Any) -> Value:
    """Divides the kept elements by 1 - p. The other elements become 0."""
    check_floating(x)
    kept = _numbers(seed, draw).random(math.prod(x.shape)).reshape(x.shape) >= p
    return np.asarray(np.where(kept, widen(x) / (1 - p), 0)).astype(x.dtype)


def _same(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """The layout of the operand. With distinct axes there is no rule."""
    return None if "distinct" in params else labels.same_dims(shapes, params)


def _make(name: str, draws: Any) -> Op:
    return Op(name, "random", (), _array(draws), required=("shape", "seed"),
              optional=(*_SEEDED, "whole", "impl"), places=True, own=True)  # fmt: skip


def _set(name: str, draws: Any) -> Op:
    return Op(name, "random", ("x",), _inplace(draws), required=("seed",),
              optional=(*_SEEDED, "distinct"), labels=_same, own=True)  # fmt: skip


ROWS = (
    _make("random_uniform", _uniform),
    _make("random_normal", _normal),
    _set("inplace_uniform", _uniform),
    _set("inplace_normal", _normal),
    Op("dropout", "random", ("x",), _dropout, required=("p", "seed"), optional=_SEEDED,
       labels=labels.same_dims, linear=SUM_AVG, grads=(0,), own=True),
)  # fmt: skip
