"""Is every collective of a compiled program read from its text, and read rightly?"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from adapters.answer import Collective
from adapters.jax_xla import collectives, hlo
from adapters.jax_xla.hlo import HloError
from adapters.worker_process import ROOT
from cases.model import Mesh, mesh

SQUARE = mesh({"a": 2, "b": 2})
ROW = mesh({"x": 4})

ADD = """
%add (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %r = f32[] add(%p, %q)
}
"""


def module(body: str, *others: str, entry: str = "ENTRY %main (x: f32[8,4]) -> f32[8,4]") -> str:
    """HLO text whose entry computation holds ``body`` after a parameter %x of 128 bytes."""
    lines = "\n".join(f"  {line.strip()}" for line in body.strip().splitlines())
    start = "  %x = f32[8,4]{1,0} parameter(0)"
    return "\n".join(
        [
            "HloModule jit_f, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{1,0}}, "
            "num_partitions=4",
            *others,
            f"\n{entry} {{\n{start}\n{lines}\n}}\n",
        ]
    )


def read(text: str, on: Mesh = SQUARE, positions: tuple[int, ...] = (0, 1, 2, 3)) -> Any:
    """The collectives of HLO text on a mesh."""
    return collectives.find_collectives(hlo.parse(text), on, positions)


GATHER = "all-gather(%x), channel_id=1, dimensions={0}, use_global_device_ids=true"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("{}", ((0, 1, 2, 3),)),
        ("[2,2]<=[4]", ((0, 1), (2, 3))),
        ("[2,2]<=[2,2]T(1,0)", ((0, 2), (1, 3))),
        ("[1,4]<=[2,2]T(1,0)", ((0, 2, 1, 3),)),
        ("mesh['axis_0'=2,'axis_1'=2] {'axis_1'}", ((0, 1), (2, 3))),
        ("mesh['axis_0'=2,'axis_1'=2] {'axis_0'}", ((0, 2), (1, 3))),
        ("mesh['a'=2,'b'=2] {'b','a'}", ((0, 2, 1, 3),)),
        ("mesh['a'=1,'b'=2,'c'=2], device_ids=([2,2]T(1,0)) {'b'}", ((0, 1), (2, 3))),
        ("mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}", ((0, 2), (1, 3))),
        ("mesh['x'=4] {'x':(1)2}", ((0, 2), (1, 3))),
        ("mesh['x'=4] {'x':(2)2}", ((0, 1), (2, 3))),
        ("mesh[x=4] {x}", ((0, 1, 2, 3),)),
    ],
)
def test_every_spelling_of_groups_names_the_same_ids(
    text: str, wanted: tuple[tuple[int, ...], ...]
) -> None:
    """Lists, iotas and mesh axes, with sub-axes and device orders, give the groups they mean."""
    assert collectives.parse_groups(text, 4) == wanted


@pytest.mark.parametrize(
    "text", ["[2,2]", "mesh['a'=2] {'b'}", "mesh['a'] {'a'}", "axis 0", "<=[4]"]
)
def test_groups_in_no_known_spelling_are_an_error(text: str) -> None:
    """A spelling that is not known is never taken for another."""
    with pytest.raises(HloError):
        collectives.parse_groups(text, 4)


@pytest.mark.parametrize(
    ("groups", "axes", "size"),
    [
        ("{{0,1},{2,3}}", ("b",), 2),
        ("{{2,0},{3,1}}", ("a",), 2),
        ("[1,4]<=[4]", ("a", "b"), 4),
        ("{{0,3},{1,2}}", (), 2),
        ("{{0,1,2},{3}}", (), 3),
    ],
)
def test_groups_are_mesh_axes_or_none(groups: str, axes: tuple[str, ...], size: int) -> None:
    """Groups that are those of some axes name them; others name none and keep their size."""
    text = module(f"ROOT %g = f32[16,4]{{1,0}} {GATHER}, replica_groups={groups}")
    assert read(text) == (Collective("all-gather", axes, size, 128),)


def test_axes_of_size_one_are_never_named() -> None:
    """A size-1 axis joins nobody, so it is no part of what a collective runs over."""
    text = module(f"ROOT %g = f32[32,4]{{1,0}} {GATHER}, replica_groups=[1,4]<=[4]")
    on = mesh({"one": 1, "x": 4})
    assert read(text, on) == (Collective("all-gather", ("x",), 4, 128),)


def test_partitions_are_mapped_to_mesh_positions() -> None:
    """Groups are of partitions; where those lie on the mesh decides which axis it is."""
    text = module(f"ROOT %g = f32[16,4]{{1,0}} {GATHER}, replica_groups={{{{0,1}},{{2,3}}}}")
    (swapped,) = read(text, positions=(0, 2, 1, 3))
    assert swapped.axes == ("a",)


def test_a_combined_all_reduce_is_one_of_all_bytes() -> None:
    """The combiner's all-reduce of two operands counts once, with the bytes of both."""
    text = module(
        """
        %c = s8[3]{0} constant({1, 2, 3})
        %sum = (f32[8,4]{1,0}, s8[3]{0}) all-reduce(%x, %c), channel_id=1, replica_groups=[1,4]<=[4], use_global_device_ids=true, to_apply=%add
        ROOT %one = f32[8,4]{1,0} get-tuple-element(%sum), index=0
        """,  # noqa: E501
        ADD,
    )
    assert read(text) == (Collective("all-reduce", ("a", "b"), 4, 128 + 3),)


def test_a_start_and_its_done_are_one() -> None:
    """Split collectives count where they start, with the operand's bytes."""
    text = module(
        """
        %s = f32[8,4]{1,0} all-reduce-start(%x), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%add
        %d = f32[8,4]{1,0} all-reduce-done(%s)
        %ps = (f32[8,4]{1,0}, f32[8,4]{1,0}) collective-permute-start(%d), channel_id=2, source_target_pairs={{0,1},{1,0}}
        ROOT %pd = f32[8,4]{1,0} collective-permute-done(%ps)
        """,  # noqa: E501
        ADD,
    )
    assert [one.kind for one in read(text)] == ["all-reduce", "collective-permute"]
    assert [one.bytes for one in read(text)] == [128, 128]


def test_a_wrapped_asynchronous_collective_is_one() -> None:
    """The done of a generic start names the same computation, and does not count it again."""
    wrapped = """
%async (y: f32[8,4]) -> f32[2,4] {
  %y = f32[8,4]{1,0} parameter(0)
  ROOT %rs = f32[2,4]{1,0} reduce-scatter(%y), channel_id=1, replica_groups=[1,4]<=[4], use_global_device_ids=true, dimensions={0}, to_apply=%add
}, execution_thread="main"
"""  # noqa: E501
    text = module(
        """
        %s = ((f32[8,4]{1,0}), f32[2,4]{1,0}) async-start(%x), calls=%async
        ROOT %d = f32[2,4]{1,0} async-done(%s), calls=%async
        """,
        ADD,
        wrapped,
    )
    assert read(text) == (Collective("reduce-scatter", ("a", "b"), 4, 128),)


STEP = f"""
%step (y: f32[8,4]) -> f32[8,4] {{
  %x = f32[8,4]{{1,0}} parameter(0)
  %g = f32[16,4]{{1,0}} {GATHER}, replica_groups={{{{0,1}},{{2,3}}}}
  ROOT %s = f32[8,4]{{1,0}} slice(%g), slice={{[0:8], [0:4]}}
}}
"""


def test_a_loop_body_counts_once_and_says_so() -> None:
    """How often a loop turns is not in the text, so its collectives are marked, not multiplied."""
    again = "%again (y: f32[8,4]) -> pred[] {\n  ROOT %t = pred[] constant(true)\n}\n"
    text = module("ROOT %w = f32[8,4]{1,0} while(%x), condition=%again, body=%step", again, STEP)
    assert read(text) == (Collective("all-gather", ("b",), 2, 128, in_loop=True),)


def test_called_computations_count_as_often_as_they_are_called() -> None:
    """Calls, fusions and every branch of a conditional are followed."""
    text = module(
        """
        %one = f32[8,4]{1,0} call(%x), to_apply=%step
        %two = f32[8,4]{1,0} fusion(%one), kind=kLoop, calls=%step
        %i = s32[] constant(0)
        ROOT %c = f32[8,4]{1,0} conditional(%i, %two, %two), branch_computations={%step, %step}
        """,
        STEP,
    )
    assert len(read(text)) == 4
    assert collectives.count_collectives(hlo.parse(text)) == Counter({"all-gather": 1})


BACK = 'metadata={op_name="jit(f)/transpose(jvp())/mul" stack_frame_id=3}'
FORE = 'metadata={op_name="jit(f)/jvp()/dot_general"}'
# A gather of the forward pass, one of the backward, and three that need what that made.
PASSES = module(
    f"""
    %a = f32[32,4] {GATHER}, {FORE}
    %b = f32[32,4] {GATHER}, {BACK}
    %c = f32[8,4] slice(%b), slice={{[0:8], [0:4]}}
    %d = f32[32,4] {GATHER.replace("%x", "%c")}, metadata={{op_name="jit(f)/reshard"}}
    %e = f32[32,4] {GATHER.replace("%x", "%c")}
    %f = f32[32,4] {GATHER}
    ROOT %g = f32[8,4] slice(%a), slice={{[0:8], [0:4]}}
    """
)


def test_the_pass_of_a_collective_is_in_its_name_or_else_in_what_it_needs() -> None:
    """JAX names what a transposition made; the nameless go with their operands."""
    passes = [one.pass_ for one in read(PASSES)]
    assert passes == ["forward", "backward", "forward", "backward", "forward"]


def test_what_a_gradient_runs_first_can_be_left_out() -> None:
    """What is backward stays, and what is done with the gradient after."""
    late = collectives.find_collectives(hlo.parse(PASSES), SQUARE, (0, 1, 2, 3), late=True)
    assert [one.pass_ for one in late] == ["backward", "forward", "backward"]


def test_called_computations_are_as_late_as_their_caller() -> None:
    """A collective in the body of a loop that runs over a gradient is the gradient's."""
    body = f"""
%body (p: f32[8,4]) -> f32[8,4] {{
  %p = f32[8,4] parameter(0)
  %h = f32[32,4] {GATHER.replace("%x", "%p")}
  ROOT %s = f32[8,4] slice(%h), slice={{[0:8], [0:4]}}
}}
"""
    text = module(
        f"""
        %m = f32[8,4] multiply(%x, %x), {BACK}
        %first = f32[8,4] call(%x), to_apply=%body
        ROOT %then = f32[8,4] call(%m), to_apply=%body
        """,
        body,
    )
    assert [one.pass_ for one in read(text)] == ["forward", "backward"]


def test_what_shard_map_calls_is_of_its_callers_pass() -> None:
    """Names inside of a called computation begin anew; the caller's name has the pass."""
    body = f"""
%body (p: f32[8,4]) -> f32[8,4] {{
  %p = f32[8,4] parameter(0)
  %h = f32[32,4] {GATHER.replace("%x", "%p")}, metadata={{op_name="all_gather"}}
  ROOT %s = f32[8,4] slice(%h), slice={{[0:8], [0:4]}}
}}
"""
    text = module(
        f"""
        %one = f32[8,4] call(%x), to_apply=%body, {FORE}
        %two = f32[8,4] call(%x), to_apply=%body, {BACK}
        %three = f32[8,4] call(%two), to_apply=%body, {FORE}
        ROOT %c = f32[8,4] copy(%three)
        """,
        body,
    )
    assert [one.pass_ for one in read(text)] == ["forward", "backward", "forward"]


def test_the_optimisers_collectives_are_an_updates() -> None:
    """By the scope in its name; a nameless one that needs what was made there is one too."""
    text = module(
        f"""
        %g = f32[8,4] multiply(%x, %x), {BACK}
        %a = f32[32,4] {GATHER}, metadata={{op_name="jit(f)/update/mul"}}
        %n = f32[8,4] subtract(%x, %g), metadata={{op_name="jit(f)/update/sub"}}
        %b = f32[32,4] {GATHER.replace("%x", "%n")}
        %c = f32[32,4] {GATHER.replace("%x", "%g")}
        ROOT %d = f32[8,4] copy(%n), metadata={{op_name="jit(f)/dynamic_update_slice"}}
        """
    )
    assert [one.pass_ for one in read(text)] == ["update", "update", "backward"]


def test_a_computation_that_nobody_calls_does_not_count() -> None:
    """Only what the entry computation reaches is part of the program."""
    assert read(module("ROOT %n = f32[8,4]{1,0} negate(%x)", STEP)) == ()


@pytest.mark.parametrize(
    ("pairs", "axes", "size"),
    [
        ("{{0,1},{1,0},{2,2},{3,3}}", ("b",), 2),
        ("{{0,2},{1,1},{2,0},{3,3}}", ("a",), 2),
        ("{{0,0},{1,2},{2,1},{3,3}}", ("a", "b"), 4),
        ("{{0,0},{1,1}}", (), 1),
        ("{}", (), 1),
    ],
)
def test_a_permute_runs_over_the_axes_that_some_pair_crosses(
    pairs: str, axes: tuple[str, ...], size: int
) -> None:
    """Axes along which no source differs from its target are not part of a permute."""
    text = module(
        "ROOT %p = f32[8,4]{1,0} collective-permute(%x), channel_id=1, "
        f"source_target_pairs={pairs}"
    )
    assert read(text) == (Collective("collective-permute", axes, size, 128),)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("pred", 32), ("bf16", 64), ("s32", 128), ("c64", 256), ("f64", 256), ("f8e4m3fn", 32)],
)
def test_bytes_follow_the_element_type(dtype: str, size: int) -> None:
    """The operand's own element type counts, whatever the collective makes of it."""
    text = module(
        f"%y = {dtype}[8,4]{{1,0}} convert(%x)\n"
        f"ROOT %g = f32[16,4]{{1,0}} {GATHER.replace('%x', '%y')}, replica_groups=[2,2]<=[4]"
    )
    assert [one.bytes for one in read(text)] == [size]


def test_what_stands_in_quotes_and_comments_is_not_read() -> None:
    """Names, brackets and opcodes in metadata, comments and file tables mean nothing."""
    tables = (
        '\nFileNames\n1 "/all-reduce(%x), {/f.py"\n\nFunctionNames\n1 "f"\n\nFileLocations\n'
        "1 {file_name_id=1}\n\nStackFrames\n1 {file_location_id=1 parent_frame_id=1}\n\n"
    )
    text = module(
        r"""
        %t = (f32[8,4]{1,0}, /*index=1*/f32[8,4]{1,0}) tuple(%x, /*index=1*/%x), metadata={op_name="all-gather(\"%x\") }) ["}
        %y = f32[8,4]{1,0} get-tuple-element((f32[8,4]{1,0}, /*index=1*/f32[8,4]{1,0}) %t), index=1
        ROOT %g = f32[16,4]{1,0} all-gather(f32[8,4]{1,0} %y), channel_id=1, replica_groups=[2,2]<=[4], use_global_device_ids=true, dimensions={0}, backend_config={"a":["},"]}
        """,  # noqa: E501
        tables,
    )
    parsed = hlo.parse(text)
    assert parsed.computations["main"]["t"].operands == ("x", "x")
    assert [one.kind for one in read(text)] == ["all-gather"]


def test_groups_without_global_ids_span_every_partition() -> None:
    """With a channel and no global ids the groups are replicas, each of all partitions."""
    text = module(
        "ROOT %g = f32[32,4]{1,0} all-gather(%x), channel_id=1, replica_groups={{0}}, "
        "dimensions={0}"
    )
    assert read(text) == (Collective("all-gather", ("a", "b"), 4, 128),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("HloModule m\n", "without ENTRY"),
        ("module m", "line 1: wanted 'HloModule '"),
        (module("ROOT %n = f32[8,4]{1,0} negate(%x"), "wanted"),
        (module("%n = negate(%x)"), "line 5: wanted a shape, found 'negate"),
        (module("ROOT %n = f32[8,4]{1,0} negate(%x), sharding"), "wanted name=value"),
        (module("ROOT %n = f32[8,4]{1,0} negate(%x), a={(})"), "brackets in pairs"),
        (module("ROOT %n = f32[8,4]{1,0} negate(%x)", "\nSurprise\n\n"), "wanted a computation"),
        (module("ROOT %n = f32[8,4]{1,0} call(%x), to_apply=%f"), "no computation is called f"),
        (module(f"ROOT %g = f32[8]{{0}} {GATHER.replace('%x', '%y')}"), "no instruction is called"),
        (module("ROOT %n = f32[8,4]{1,0} negate(%x#0)"), "no tuple x with an element 0"),
        (module("ROOT %g = f32[8,4]{1,0} all-reduce(%x), to_apply=%add", ADD), "over replicas"),
        (
            module(
                f"%y = u3[8]{{0}} convert(%x)\nROOT %g = f32[8]{{0}} {GATHER.replace('%x', '%y')}"
            ),
            "'u3' has no known size",
        ),
    ],
)
def test_text_outside_the_grammar_is_an_error(text: str, message: str) -> None:
    """Nothing that is not understood is passed over, and the error says where it stands."""
    with pytest.raises(HloError, match=message):
        read(text)


# Runs in a process of its own, which imports jax. Prints, for each of a few dozen programs,
# what is read at three stages: as the partitioner left it, at the end with the all-reduce
# combiner off, and at the end as it runs.
STAGES = r"""
import json, os, sys
from adapters.jax_xla.adapter import connect
adapter = connect(8)
# Its children have as many devices; here is one more process that needs them.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
from adapters.jax_xla import collectives, hlo
from adapters.jax_xla.arrays import jax_mesh
from adapters.jax_xla.compiled_program import Compiler
from cases.model import mesh

compiler = Compiler()
square, row = mesh({"a": 2, "b": 2}), mesh({"x": 4})
rows = []

def final(function, arguments, on, options):
    text = jax.jit(function).lower(*arguments).compile(options).as_text()
    return list(collectives.find_collectives(hlo.parse(text), on, tuple(range(4))))

def add(name, on, specs, function, shape=(8, 8), dtype="float32", want=P()):
    there = jax_mesh(on, "Auto")
    data = np.arange(np.prod(shape)).reshape(shape).astype(jnp.dtype(dtype))
    arguments = [jax.device_put(data, NamedSharding(there, spec)) for spec in specs]
    wanted = NamedSharding(there, want)
    def whole(*xs):
        out = function(there, *xs)
        return jax.tree.map(lambda x: lax.with_sharding_constraint(x, wanted), out)
    stage = compiler.compile(name, whole, arguments, on)
    off = {"xla_disable_hlo_passes": "cpu-all-reduce-combiner"}
    rows.append({
        "name": name, "dtype": dtype, "complaints": stage.complaints,
        "stage": [str(one) for one in sorted(stage.collectives, key=str)],
        "off": [str(one) for one in sorted(final(whole, arguments, on, off), key=str)],
        "kinds": [one.kind for one in stage.collectives],
        "bytes": [one.bytes for one in stage.collectives],
        "loops": [one.in_loop for one in stage.collectives],
        "end": [one.kind for one in final(whole, arguments, on, None)],
    })

same = lambda there, x: x
specs = [P("a"), P(None, "b"), P("a", "b"), P(("a", "b")), P(("b", "a"))]
for source in specs:
    for target in [P(), *specs[:3]]:
        add(f"{source} to {target}", square, [source], same, want=target)
for dtype in ("int32", "bool", "float64", "bfloat16"):
    total = lambda there, x: jnp.sum(x, axis=0, dtype=x.dtype)
    add(f"sum {dtype}", square, [P("a")], total, (2, 8, 8), dtype)
    add(f"gather {dtype}", square, [P("a", "b")], same, dtype=dtype)
add("matmul", row, [P(None, "x"), P("x")], lambda there, x, w: x @ w)
add("two sums", row, [P("x"), P("x")],
    lambda there, x, y: (jnp.sum(x * 2, 0), jnp.sum(y * y, 0)))
def loop(there, x):
    split = NamedSharding(there, P("x"))
    body = lambda c, _: (lax.with_sharding_constraint(c @ c, split), None)
    return lax.scan(body, x, None, length=3)[0]
add("loop", row, [P("x")], loop)
def mapped(function, inside, outside):
    return lambda there, x: jax.shard_map(
        function, mesh=there, in_specs=inside, out_specs=outside, check_vma=False)(x)
add("psum of psum", square, [P("a", "b")],
    mapped(lambda x: lax.psum(lax.psum(x, "a"), "b"), P("a", "b"), P()))
add("scatter", square, [P("a", "b")], mapped(
    lambda x: lax.psum_scatter(x, ("b", "a"), scatter_dimension=0, tiled=True),
    P("a", "b"), P(("b", "a"))), want=P(("b", "a")))
add("permute", row, [P("x")], mapped(
    lambda x: lax.ppermute(x, "x", [(0, 1), (1, 0)]), P("x"), P("x")), want=P("x"))
compiler.close()
adapter.close()
json.dump(rows, sys.stdout)
"""


@pytest.fixture(scope="module")
def stages() -> list[dict[str, Any]]:
    """What the stages of compilation hold, program by program."""
    done = subprocess.run(
        [sys.executable, "-c", STAGES], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_xla_parses_the_same_collectives(stages: list[dict[str, Any]]) -> None:
    """XLA's own parser counts what ours counts in every program."""
    assert [row["complaints"] for row in stages] == [[]] * len(stages)
    assert {kind for row in stages for kind in row["kinds"]} == {
        "all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter",
    }  # fmt: skip


def test_the_partitioner_put_in_what_the_end_holds_without_the_combiner(
    stages: list[dict[str, Any]],
) -> None:
    """Two independent ways of seeing the partitioner's work agree, kind, axes and bytes."""
    compared = [row for row in stages if row["dtype"] != "bfloat16"]
    assert len(compared) > 24
    assert [row["name"] for row in compared if row["stage"] != row["off"]] == []


def test_the_combiner_would_hide_an_all_reduce(stages: list[dict[str, Any]]) -> None:
    """The program as it runs has one all-reduce where the partitioner put two."""
    (row,) = [row for row in stages if row["name"] == "two sums"]
    assert (len(row["kinds"]), len(row["end"])) == (2, 1)


def test_half_width_floats_count_two_bytes(stages: list[dict[str, Any]]) -> None:
    """The CPU backend widens bfloat16 collectives later; what is counted is the program's own."""
    (row,) = [row for row in stages if row["name"] == "sum bfloat16"]
    assert row["bytes"] == [8 * 8 * 2]
    assert row["off"] != row["stage"]


def test_a_real_loop_is_marked(stages: list[dict[str, Any]]) -> None:
    """The collectives of a scanned body stand in a loop, and nothing else does."""
    assert {row["name"] for row in stages if any(row["loops"])} == {"loop"}
