"""What does the JAX adapter print as the lines it ran, and does it complain of its own counters?"""

from __future__ import annotations

import subprocess
import sys

from tests.runs import ROOT

INSIDE = r"""
from adapters.jax_xla.adapter import JaxAdapter, connect
adapter = JaxAdapter(connect(4).hello(), 4)
import jax, numpy as np
from collections import Counter
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from adapters.jax_xla import arrays, collectives, hlo, ops
from cases.arrays import pack
from cases.model import Input, Layout, Question, Step, mesh
from cases.ops import OPS

row = mesh({"x": 4})
split, whole, owed = Layout((("x",), ())), Layout(((), ())), Layout(((), ()), (("x", "sum"),))
assert set(ops.ROWS) == set(OPS), set(ops.ROWS) ^ set(OPS)

print(ops.jit_line(Step("y", "redistribute", ("x",), to=split), "mesh"))
print(ops.jit_line(Step("y", "sum", ("x",), {"axis": [0], "keepdims": True}), "mesh"))
print(ops.explicit_line(Step("y", "matmul", ("x", "w"), to=owed), "mesh"))
print(ops.explicit_line(Step("y", "add", ("x", 2.5), to=split), "mesh2"))
print(ops.explicit_line(Step("P", "einsum", ("jax", "w"), {"subscripts": "ij,jk->ik"}), "mesh"))
mixed = Layout(((),), (("a", "sum"), ("b", "sum"), ("c", "max")))
print(*ops.reduce_lines(Input("x", (2,), "float32", mixed)), sep="\n")

there = arrays.jax_mesh(row, AxisType.Explicit)
spread = jax.device_put(np.ones((4, 4)), NamedSharding(there, P(reduced={"x"})))
print(arrays.layout_of(spread, row))
print(arrays.layout_of(spread, mesh({"x": 4}, (3, 2, 1, 0)))[0].text[:13])

data = pack(np.ones((4, 4)))
question = Question("q", row, (Input("s", (4, 4), "float64", split, data),),
                    (Step("y", "redistribute", ("s",), to=whole),), ("y",))
right = collectives.counts
collectives.counts = lambda module: right(module) + Counter({"all-gather": 1})
print(adapter.observe(question, "jax/jit", 9).complaints)
collectives.counts = right
hlo._WORD = hlo._ARRAY
answer = adapter.observe(question, "jax/shard_map:implied", 9)
print(answer.end, answer["y"].collectives, *[one[:40] for one in answer.complaints])
"""


def test_source_lines_foreign_layouts_and_complaints() -> None:
    """Lines print as they run; `reduced` is a note; a counter that miscounts is complained of."""
    done = subprocess.run(
        [sys.executable, "-c", INSIDE], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "y = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P('x')))",
        "y = jnp.sum(x, axis=(0,), keepdims=True)",
        "y = jnp.matmul(x, w, out_sharding=NamedSharding(mesh, P(unreduced={'x'})))",
        "y = jax.sharding.reshard(jnp.add(x, 2.5), NamedSharding(mesh2, P('x')))",
        "P_ = jnp.einsum('ij,jk->ik', jax_, w)",
        "x = jnp.sum(x, axis=(0, 1), dtype=x.dtype)",
        "x = jnp.max(x, axis=0)",
        "(Layout(dims=((), ()), partial=()), 'reduced over x')",
        "NamedSharding",
        "(\"y: our parser counts {'all-gather': 2}, XLA's own {'all-gather': 1}\",)",
        "Done() None y: HLO text: line 1: wanted a name, foun",
    ]
