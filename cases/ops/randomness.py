"""Which ops draw random numbers? Arrays of them, a parameter's initial values, dropout.

Each framework draws numbers of its own. A row's meaning gives shapes and dtypes, and a case can
state relations between two draws: equal, or without a common element.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cases.ops import labels
from cases.ops.op import SUM_AVG, Labels, Op, Params, Shape, Value, check_floating, widen

# How a seed reaches the generator: set in every process, given to a framework's function for a
# mesh, or in a generator of its own that the op gets.
SEEDINGS = ("process", "mesh", "generator")
# JAX's generators, which a key can belong to.
GENERATORS = (
    "threefry2x32", "threefry4x32", "philox2x32", "philox4x32", "rbg", "unsafe_rbg",
)  # fmt: skip

# Parameters that all of them take; `draw`: how many draws from this seed came before.
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
    """Shape and dtype of ``x`` alone. ``distinct``: each index of dim 0 has a seed of its own."""

    def meaning(
        x: Value, seed: int, draw: int = 0, distinct: list[str] | None = None, **how: Any
    ) -> Value:
        check_floating(x)
        if distinct is None:
            made: Value = draws(_numbers(seed, draw), x.shape, x.dtype)
            return made
        if not x.ndim:
            raise ValueError("an array of which dim 0 is split by the distinct axes")
        stages = [draws(_numbers(seed, draw, i), x.shape[1:], x.dtype) for i in range(len(x))]
        return np.stack(stages) if stages else np.zeros(x.shape, x.dtype)

    return meaning


def _dropout(x: Value, p: float, seed: int, draw: int = 0, **how: Any) -> Value:
    """An element that is kept is divided by 1 - p; one that is dropped is 0."""
    check_floating(x)
    kept = _numbers(seed, draw).random(math.prod(x.shape)).reshape(x.shape) >= p
    return np.asarray(np.where(kept, widen(x) / (1 - p), 0)).astype(x.dtype)


def _same(shapes: tuple[Shape, ...], params: Params) -> Labels | None:
    """In the operand's layout; with distinct axes, in a layout that splits dim 0 by them."""
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
