"""Does the JAX adapter write the right lines, and report faults of its own counters?"""

from __future__ import annotations

import os
import subprocess
import sys

import ml_dtypes
import msgspec
import numpy as np
import pytest

from adapters.jax_xla import source_lines
from adapters.jax_xla.mesh_lines import joined_function
from adapters.jax_xla.names import NEWEST, format_imports
from adapters.reference.evaluate import evaluate
from adapters.unsupported import CannotAnswer
from cases.arrays import pack
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Input, Layout, MeshStep, Question, Step, mesh
from reports.array_source import array_expression
from tests.jax_client import ROW, SQUARE, count, layout, owed, question, tensor
from tests.runs import ROOT

INSIDE = r"""
from adapters.jax_xla.adapter import JaxAdapter, connect
import os
hello = connect(4).hello()
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
adapter = JaxAdapter(hello, 4)
import jax, numpy as np
from collections import Counter
from jax.sharding import NamedSharding, PartitionSpec as P
from adapters.jax_xla import arrays, collectives, hlo, source_lines as lines
from cases.arrays import pack
from cases.model import Input, Layout, Question, Step, mesh

row = mesh({"x": 4})
split, whole, owed = Layout((("x",), ())), Layout(((), ())), Layout(((), ()), (("x", "sum"),))

print(lines.jit_line(Step("y", "redistribute", ("x",), to=split), "mesh"))
print(lines.jit_line(Step("y", "sum", ("x",), {"axis": [0], "keepdims": True}), "mesh"))
print(lines.explicit_line(Step("y", "matmul", ("x", "w"), to=owed), "mesh"))
print(lines.explicit_line(Step("y", "add", ("x", 2.5), to=split), "mesh2"))
print(lines.explicit_line(Step("P", "einsum", ("jax", "w"), {"subscripts": "ij,jk->ik"}), "mesh"))
mixed = Layout(((),), (("a", "sum"), ("b", "sum"), ("c", "max")))
print(*lines.reduce_lines(Input("x", (2,), "float32", mixed)), sep="\n")

there = arrays.jax_mesh(row, "Explicit")
spread = jax.device_put(np.ones((4, 4)), NamedSharding(there, P(reduced={"x"})))
print(arrays.layout_of(spread, row))
print(arrays.layout_of(spread, mesh({"x": 4}, (3, 2, 1, 0)))[0].text[:13])

data = pack(np.ones((4, 4)))
question = Question("q", row, (Input("s", (4, 4), "float64", split, data),),
                    (Step("y", "redistribute", ("s",), to=whole),), ("y",))
right = collectives.count_collectives
collectives.count_collectives = lambda module: right(module) + Counter({"all-gather": 1})
print(adapter.observe(question, "jax/jit", 9).complaints)
collectives.count_collectives = right
hlo._WORD = hlo._ARRAY
answer = adapter.observe(question, "jax/shard_map:implied", 9)
print(answer.end, answer["y"].collectives, *[one[:40] for one in answer.complaints])
"""


def test_source_lines_foreign_layouts_and_complaints() -> None:
    """Lines are as they should be; ``reduced`` is a note; a wrong count is a complaint."""
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


def _script(asked: Question, route: source_lines.Route, shown: str) -> list[str]:
    """A script of a question that prints the results in ``shown``."""
    named, on, places = (
        source_lines.mesh_variables(asked),
        meshes_of_tensors(asked),
        source_lines.mesh_texts(asked),
    )
    made = [*format_imports(NEWEST), 'jax.config.update("jax_enable_x64", True)']
    made += [source_lines.mesh_line(one, name, route) for one, name in named.items()]
    made += joined_function(NEWEST).strip().splitlines()
    for name, text in source_lines.view_sources(asked, source_lines.KINDS[route]):
        made.append(f"{source_lines.variable_name(name)} = {text}")
    for given in asked.inputs:
        stack = route == "jit"
        texts = [array_expression(one, "np") for one in source_lines.input_arrays(given, stack)]
        data = texts[0] if given.per_device is None else f"[{', '.join(texts)}]"
        made.append(source_lines.input_line(given, on[given.name], places[given.name], stack, data))
        made += source_lines.reduce_lines(given) if route == "jit" else []
    made += ["jax.set_mesh(mesh)"] if route == "explicit" else []
    for step in asked.steps:
        made += source_lines.step_lines(asked, step, route)
    return [*made, *(f"print(repr(np.asarray({name}).tolist()))" for name in shown.split())]


def _run(script: list[str]) -> list[str]:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", "\n".join(script)]
    done = subprocess.run(
        command, env=os.environ | flags, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("route", ["jit", "explicit"])
def test_the_lines_of_a_question_are_a_script(route: source_lines.Route) -> None:
    """The lines run one after another as a script, and compute what NumPy computes."""
    on = mesh({"a": 2, "b": 2}, (3, 1, 2, 0))
    odd = np.array([[np.nan, 1.5], [-np.inf, 2]], ml_dtypes.bfloat16)
    parts = tuple(pack(part) for part in np.split(count(8, 2), 4))
    inputs = [
        tensor("x", count(8, 4), layout(SQUARE, "S(0)", "S(1)")),
        tensor("jnp", count(4, 4)[::-1] / 8, layout(SQUARE, "R", "S(0)")),
        tensor("none", np.zeros((0, 4), np.int32), layout(SQUARE, "R", "S(1)")),
        msgspec.structs.replace(tensor("odd", odd, layout(on, "S(0)", "R")), mesh=on),
        owed("p", SQUARE, count(2, 4, 2), layout(SQUARE, "P(sum)", "S(0)")),
        Input("parts", (8, 2), "float32", Layout((("a", "b"), ())), per_device=parts),
    ]
    steps = [
        Step("y", "matmul", ("x", "jnp"), to=layout(SQUARE, "S(0)", "R")),
        Step("l", "mean", ("y",)),
        Step("g", "grad", ("l", "jnp"), to=layout(SQUARE, "R", "S(1)")),
        Step("odd2", "identity", ("odd",)),
        Step("p2", "redistribute", ("p",), to=layout(SQUARE, "R", "S(0)")),
        Step("parts2", "multiply", ("parts", -1)),
    ]
    if route == "explicit":
        # A mesh that is set rules out every other.
        steps = [step for step in steps if step.result != "odd2"]
    asked = question(SQUARE, inputs, *steps)
    names = [step.result for step in steps]
    right = evaluate(asked)
    printed = _run(_script(asked, route, " ".join(names)))
    for name, line in zip(names, printed, strict=True):
        got = eval(line, {"nan": np.nan, "inf": np.inf})
        np.testing.assert_allclose(got, right[name].astype(np.float64), rtol=1e-6, err_msg=name)


MESH_STEPS = (
    MeshStep("v", "mesh_unflatten", ("w",), {"axes": {"a": 2, "b": 2, "c": 1}}),
    MeshStep("s", "mesh_slice", ("b", "a"), {"of": "v"}),
    MeshStep("f", "mesh_flatten", ("b", "c"), {"of": "v"}),
    MeshStep("apart", "mesh_flatten", ("a", "c"), {"of": "v"}),
    MeshStep("a", "mesh_flatten", ("b", "c"), {"of": "v"}),
    MeshStep("both", "mesh_concatenate", ("s", "v2")),
    MeshStep("same", "mesh_equal", ("s", "f")),
)


def test_a_derived_mesh_is_a_whole_mesh_and_the_axes_that_count() -> None:
    """Neighbours are flattened in place, other axes move to the end."""
    second = MeshStep("v2", "mesh_unflatten", ("w",), {"axes": {"d": 1, "e": 4}})
    steps = (*MESH_STEPS[:5], second, *MESH_STEPS[5:])
    asked = Question("q", mesh({"w": 4}), mesh_steps=steps)
    made = "NamedSharding(jax.sharding.Mesh({}, {!r}, axis_types=(AxisType.Auto,) * {}), P({}))"
    assert dict(source_lines.view_sources(asked, "Auto")) == {
        "v": made.format("mesh.devices.reshape(2, 2, 1)", ("a", "b", "c"), 3, "'a', 'b', 'c'"),
        "s": "NamedSharding(v.mesh, P('b', 'a'))",
        "f": made.format("v.mesh.devices.reshape(2, 2)", ("a", "f"), 2, "'f'"),
        "apart": made.format(
            "v.mesh.devices.transpose(1, 0, 2).reshape(2, 2)", ("b", "apart"), 2, "'apart'"
        ),
        "a": made.format("v.mesh.devices.reshape(2, 2)", ("*", "a"), 2, "'a'"),
        "v2": made.format("mesh.devices.reshape(1, 4)", ("d", "e"), 2, "'d', 'e'"),
        "both": "NamedSharding(joined(NamedSharding(v.mesh, P('b', 'a')), "
        "NamedSharding(v2.mesh, P('d', 'e'))), P('b', 'a', 'd', 'e'))",
        "same": "s == f",
    }


def test_what_is_wrong_is_asked_of_jax_as_it_stands() -> None:
    """An unknown axis is in a spec of the mesh, and wrong sizes are a shape of its devices."""
    for step, text in (
        (MeshStep("m", "mesh_slice", ("q",)), "NamedSharding(mesh, P('q'))"),
        (MeshStep("m", "mesh_slice", ("a", "a")), "NamedSharding(mesh, P('a', 'a'))"),
        (MeshStep("m", "mesh_flatten", ("a", "q")), "NamedSharding(mesh, P(('a', 'q')))"),
        (
            MeshStep("m", "mesh_unflatten", ("q",), {"axes": {"c": 2}}),
            "NamedSharding(mesh, P('q'))",
        ),
        (
            MeshStep("m", "mesh_unflatten", ("a",), {"axes": {"c": 3}}),
            "NamedSharding(jax.sharding.Mesh(mesh.devices.reshape(3, 2), ('c', 'b'), "
            "axis_types=(AxisType.Auto,) * 2), P('c', 'b'))",
        ),
    ):
        asked = Question("q", SQUARE, mesh_steps=(step,))
        assert source_lines.view_sources(asked, "Auto") == [("m", text)]


@pytest.mark.parametrize("route", ["jit", "explicit"])
def test_lines_on_derived_meshes_are_a_script(route: source_lines.Route) -> None:
    """Tensors are on a slice and on axes of two meshes, and one moves to another view."""
    steps = (
        MeshStep("v", "mesh_unflatten", ("w",), {"axes": {"a": 2, "b": 2}}),
        MeshStep("u", "mesh_unflatten", ("w",), {"axes": {"c": 2, "d": 2}}),
        MeshStep("s", "mesh_slice", ("b",), {"of": "v"}),
        MeshStep("t", "mesh_slice", ("c",), {"of": "u"}),
        MeshStep("both", "mesh_concatenate", ("t", "s")),
    )
    parts = tuple(pack(part) for part in count(4, 1, 2))
    inputs = [
        Input("x", (4, 4), "float32", Layout((("b",), ())), pack(count(4, 4)), view="s"),
        Input("p", (1, 2), "float32", Layout(((), ()), (("b", "sum"),)), per_device=parts,
              view="s"),
        Input("z", (4, 4), "float32", Layout((("c",), ("b",))), pack(count(4, 4)), view="both"),
    ]  # fmt: skip
    program = [
        Step("y", "redistribute", ("x",), to=Layout(((), ("b",)))),
        Step("o", "redistribute", ("p",), to=Layout(((), ()))),
        Step("g", "redistribute", ("z",), to=Layout((("c",), ()))),
    ]
    if route == "explicit":
        program = program[:2]
        inputs = inputs[:2]
        program.append(Step("m", "redistribute", ("y",), {"view": "u"}, Layout((("c", "d"), ()))))
    on = mesh({"w": 4})
    asked = Question("q", on, tuple(inputs), tuple(program), (), steps)
    names = [step.result for step in program]
    right = evaluate(asked)
    for name, line in zip(names, _run(_script(asked, route, " ".join(names))), strict=True):
        assert np.array_equal(eval(line), right[name]), name


def test_lines_are_made_without_jax() -> None:
    """To write scripts, JAX need not be installed."""
    code = (
        "import sys, adapters.jax_xla.source_lines; assert not {'jax', 'jaxlib'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_lines_of_a_gradient_use_what_they_do_not_make() -> None:
    """The function runs the steps between input and scalar, and uses all other results."""
    steps = (
        Step("c", "exp", ("w",)),
        Step("y", "multiply", ("x", "c")),
        Step("z", "square", ("y",)),
        Step("l", "sum", ("y",)),
        Step("g", "grad", ("l", "x")),
    )
    asked = question(
        ROW, [tensor(name, count(4), layout(ROW, "R", ndim=1)) for name in "xw"], *steps
    )
    assert sorted(source_lines.names_used(asked, steps[-1])) == ["c", "x"]
    assert source_lines.step_lines(asked, steps[-1], "jit") == [
        "def l_of(x):",
        "    y = jnp.multiply(x, c)",
        "    l = jnp.sum(y)",
        "    return l",
        "g = jax.grad(l_of)(x)",
    ]
    assert source_lines.names_used(asked, steps[1]) == ["x", "c"]


def test_names_that_would_hide_another_are_changed() -> None:
    """Modules, meshes, builtins in lines, keywords of Python and functions of gradients."""
    for taken in ("jax", "mesh", "mesh2", "lambda", "enumerate", "l_of", "jax_"):
        assert source_lines.variable_name(taken) == f"{taken}_"
    assert source_lines.variable_name("meshed") == "meshed"


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        (Step("y", "linear", ("x", "w", "b")),
         "jax.sharding.reshard(jnp.matmul(x, w.T, out_sharding=OUT) + b, OUT)"),
        (Step("y", "take", ("x", "i"), {"axis": -2}),
         "x.at[..., i, :].get(out_sharding=OUT)"),
        (Step("y", "set_slice", ("x", "v"), {"axis": 1, "stop": 4}),
         "x.at[:, 0:4:1].set(v, out_sharding=OUT)"),
        (Step("y", "full", (), {"shape": [4, 2], "value": 1}),
         "jnp.full((4, 2), 1, dtype='float32', out_sharding=OUT)"),
        (Step("y", "map_shards", ("x",), {"scale": 3}),
         "jax.shard_map(lambda _t: _t * 3, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(x)"),
        (Step("y", "relu", ("x",)), "jax.sharding.reshard(jax.nn.relu(x), OUT)"),
    ],
)  # fmt: skip
def test_a_layout_is_asked_of_the_op_where_the_op_takes_it(asked: Step, line: str) -> None:
    """A reshard follows if the op does not take a layout, or if more is computed after the op."""
    step = msgspec.structs.replace(asked, to=layout(ROW, "S(0)"))
    wanted = line.replace("OUT", "NamedSharding(mesh, P('x'))")
    assert source_lines.explicit_line(step, "mesh") == f"y = {wanted}"


def test_what_has_no_line_is_unsupported() -> None:
    """A pending maximum, a partial result under jit, and map_shards without a layout."""
    for make, step in (
        (source_lines.explicit_line, Step("y", "abs", ("x",), to=layout(ROW, "P(max)"))),
        (source_lines.jit_line, Step("y", "abs", ("x",), to=layout(ROW, "P(sum)"))),
        (source_lines.jit_line, Step("y", "map_shards", ("x",), {"scale": 2})),
    ):
        with pytest.raises(CannotAnswer) as caught:
            make(step, "mesh")
        assert caught.value.place == "y"
