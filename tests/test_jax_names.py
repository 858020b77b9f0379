"""Is the table of JAX's names right? Does an answer say which name a release lacks?"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from adapters.answer import Done, Unsupported
from adapters.jax_xla import names, source_lines
from adapters.jax_xla.mesh_lines import joined_function
from adapters.jax_xla.names import NAMES, NEWEST, OLDEST, OPTIONS
from adapters.release_names import find_location
from adapters.unsupported import CannotAnswer
from adapters.worker_process import ROOT
from cases.model import Step
from tests.jax_client import (
    CHEAPEST,
    EXPLICIT,
    IMPLIED,
    JIT,
    ROUTES,
    ROW,
    Client,
    count,
    layout,
    move,
    question,
    tensor,
)

SPLIT = layout(ROW, "S(0)")
WHOLE = layout(ROW, "R")

# Whether the newest place of each name is there in the release that runs this, with the keywords.
LIVE = r"""
import inspect, json, os, re
os.environ["JAX_PLATFORMS"] = "cpu"
import jax
from adapters.jax_xla.names import NAMES, OPTIONS
from adapters.release_names import import_path

def there(name):
    try:
        found = import_path(NAMES[name][0].path)
    except (AttributeError, ImportError):
        return False
    if method := re.fullmatch(r"x\.at\[\]\.(\w+)\(.*", name):
        found = getattr(jax.numpy.zeros(2).at[0], method[1])
    words = re.findall(r"(\w+)=", name)
    return not words or {*words} <= {*inspect.signature(found).parameters}

lowered = jax.jit(lambda x: x + 1).lower(1.0)
told = {"xla_backend_optimization_level": "0", "xla_cpu_use_fusion_emitters": False,
        "xla_disable_hlo_passes": "cpu-all-reduce-combiner"}

def known(name):
    try:
        lowered.compile({name: told[name]})
    except Exception:
        return False
    return True

found = {name: there(name) for name in NAMES} | {name: known(name) for name in OPTIONS}
print(json.dumps([jax.__version__, found]))
"""


def test_every_place_is_there_and_no_other() -> None:
    """In the installed release, a name is at its newest location exactly if the table says so."""
    done = subprocess.run(
        [sys.executable, "-c", LIVE], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    release, found = json.loads(done.stdout)
    wanted = {**NAMES, **OPTIONS}
    assert found == {
        name: find_location(wanted, name, release) is wanted[name][0] for name in wanted
    }


def test_places_are_in_order() -> None:
    """Locations are sorted, newest first, so that the first that fits is the right one."""
    for name, places in {**NAMES, **OPTIONS}.items():
        dates = [tuple(map(int, one.since.split("."))) for one in places]
        assert dates == sorted(set(dates), reverse=True), name
        for one in places:
            assert find_location({name: places}, name, one.since) is one, name
            assert one.until != one.since, name


@pytest.mark.parametrize(
    ("line", "release", "wanted"),
    [
        ("y = jax.sharding.reshard(x, s)", NEWEST, "y = jax.sharding.reshard(x, s)"),
        ("y = jax.sharding.reshard(x, s)", "0.6.2", "y = reshard(x, s)"),
        ("jax.set_mesh(mesh)", "0.5.3", "jax.sharding.set_mesh(mesh)"),
        ("y = jax.shard_map(f)(x)", "0.4.38", "y = shard_map(f)(x)"),
        ("y = my.jax.shard_map(jax.shard_maps)", "0.4.38", "y = my.jax.shard_map(jax.shard_maps)"),
        ("y = jnp.cumulative_prod(x, axis=0)", "0.4.30", "y = jnp.cumprod(x, axis=0)"),
        ("y = jnp.cumulative_sum(x, axis=0)", "0.4.30", "y = jnp.cumulative_sum(x, axis=0)"),
    ],
)  # fmt: skip
def test_lines_have_the_names_of_a_release(line: str, release: str, wanted: str) -> None:
    """A name that moved is written as it was before. Longer names that contain it stay."""
    assert names.respell_line(line, release) == wanted
    assert names.respell_line(wanted, release) == wanted
    used = {"reshard": "jax.experimental.shard", "shard_map": "jax.experimental.shard_map"}
    for name, module in used.items():
        if f" {name}(" in wanted:
            assert f"from {module} import {name}" in names.format_imports(release)


def test_a_line_with_a_name_that_a_release_lacks_is_unsupported() -> None:
    """The reason has the name and the release that has it, and the step."""
    with pytest.raises(CannotAnswer) as stopped:
        names.respell_line("y = jax.sharding.reshard(x, s)", "0.4.38", "y")
    why = "jax 0.4.38 has no jax.sharding.reshard, which is there since 0.5.1"
    assert (stopped.value.why, stopped.value.place) == (why, "y")


TAKEN = Step("y", "topk_values", ("x",), {"k": 2, "axis": 0})
BOUND = Step("y", "clip", ("x",), {"min": 0})
DEGREES = Step("y", "var", ("x",), {"axis": 0, "correction": 1})
SCATTERED = Step("y", "scatter", ("x", "i", "v"), {"axis": 0}, SPLIT)
PRODUCT = Step("y", "matmul", ("x", "w"), to=SPLIT)


@pytest.mark.parametrize(
    ("step", "release", "wanted"),
    [
        (TAKEN, NEWEST, "y = jax.lax.top_k(x, 2, axis=0)[0]"),
        (Step("y", "topk_values", ("x",), {"k": 2}), "0.7.2", "y = jax.lax.top_k(x, 2)[0]"),
        (
            Step("y", "topk_values", ("x",), {"k": 2, "axis": -1}),
            "0.7.2",
            "y = jax.lax.top_k(x, 2)[0]",
        ),
        (BOUND, NEWEST, "y = jnp.clip(x, min=0)"),
        (BOUND, OLDEST, "y = jnp.clip(x, 0, None)"),
        (DEGREES, OLDEST, "y = jnp.var(x, ddof=1, axis=0)"),
    ],
)
def test_an_op_is_spelled_as_a_release_has_it(step: Step, release: str, wanted: str) -> None:
    """Before a keyword was added, the line leaves it out, or has what meant the same."""
    assert source_lines.jit_line(step, "mesh", release) == wanted


def test_a_keyword_that_is_asked_for_and_missing_is_unsupported() -> None:
    """A line never drops a parameter because the release has no keyword for it."""
    with pytest.raises(CannotAnswer) as stopped:
        source_lines.jit_line(TAKEN, "mesh", "0.7.2")
    why = "jax 0.7.2 has no jax.lax.top_k(axis=), which is there since 0.8.1"
    assert (stopped.value.why, stopped.value.place) == (why, "y")


def test_a_layout_is_asked_of_the_op_or_of_a_reshard_after_it() -> None:
    """In older releases the op does not take a layout, and a reshard in the same step follows."""
    to = "NamedSharding(mesh, P('x'))"
    asked = f"y = jnp.matmul(x, w, out_sharding={to})"
    assert source_lines.explicit_line(PRODUCT, "mesh", "0.7.2") == asked
    assert (
        source_lines.explicit_line(PRODUCT, "mesh", "0.6.2")
        == f"y = reshard(jnp.matmul(x, w), {to})"
    )
    assert f".set(_v, out_sharding={to}))" in source_lines.explicit_line(SCATTERED, "mesh", "0.7.1")
    assert source_lines.explicit_line(SCATTERED, "mesh", "0.7.0") == (
        f"y = jax.sharding.reshard(jnp.put_along_axis(x, i, v, axis=0, inplace=False), {to})"
    )


def test_a_release_without_kinds_of_axes_has_auto_alone() -> None:
    """Its meshes have no axis types, and an Explicit mesh is unsupported."""
    wanted = "mesh = jax.sharding.Mesh(np.array(jax.devices())[:4].reshape(4,), ('x',))"
    assert source_lines.mesh_line(ROW, "mesh", "jit", "0.5.0") == wanted
    assert "axis_types=(AxisType.Auto,) * 1" in source_lines.mesh_line(ROW, "mesh", "jit", "0.5.3")
    assert ("axis_types" in joined_function("0.5.3"), "axis_types" in joined_function("0.5.2")) == (
        True,
        False,
    )
    assert "AxisType" not in " ".join(names.format_imports("0.5.2"))
    with pytest.raises(CannotAnswer, match=r"jax 0\.5\.0 has no jax\.sharding\.AxisType"):
        source_lines.mesh_line(ROW, "mesh", "explicit", "0.5.0")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A worker that takes the installed JAX for 0.4.38, and uses only what 0.4.38 has."""
    folder = tmp_path_factory.mktemp("old")
    client = Client(Path(folder), "tests.toys.older_jax")
    yield client
    assert client.close() == 0


def test_what_a_release_lacks_ends_the_route_that_needs_it(old: Client) -> None:
    """Explicit axes are unsupported. The other routes answer."""
    asked = move(ROW, tensor("x", count(8, 4), SPLIT), WHOLE)
    answers = {answer.subject: answer for answer in old.ask(asked, *ROUTES)}
    why = "jax 0.4.38 has no jax.sharding.AxisType, which is there since 0.5.3"
    assert answers[EXPLICIT].end == Unsupported(why)
    for subject in (JIT, IMPLIED, CHEAPEST):
        assert answers[subject].end == Done(), subject
        assert not answers[subject].complaints
        assert answers[subject]["y"].layout == WHOLE


def test_a_program_without_inputs_needs_something_that_says_where(old: Client) -> None:
    """Before ``jax.set_mesh``, only a layout that is asked for says which devices to use."""
    made = Step("y", "full", (), {"shape": [8, 4], "value": 2.5})
    (answer,) = old.ask(question(ROW, [], made), JIT)
    why = "jax 0.4.38 has no jax.set_mesh as a context, which is there since 0.5.0"
    assert answer.end == Unsupported(why, "y")
    laid = Step("y", "full", (), {"shape": [8, 4], "value": 2.5}, SPLIT)
    (answer,) = old.ask(question(ROW, [], laid), JIT)
    assert (answer.end, answer["y"].layout) == (Done(), SPLIT)


def test_the_worker_says_what_is_not_checked(old: Client) -> None:
    """XLA's own parser gives no opcodes here. The facts of the worker say so, answers do not."""
    assert any("not checked" in fact for fact in old.hello.facts)


def test_a_plan_has_shapes_where_programs_do_not_say_them(old: Client) -> None:
    """Shapes come from an evaluation without data, and shardings from the compiled program."""
    given = tensor("x", count(8, 4), SPLIT)
    asked = question(ROW, [given], Step("y", "sum", ("x",), {"axis": 0}))
    bare = msgspec.structs.replace(given, value=None)
    (answer,) = old.ask(msgspec.structs.replace(asked, inputs=(bare,), mode="dry run"), JIT)
    assert (answer.end, answer["y"].shape, answer["y"].local) == (Done(), (4,), (4,))
    assert answer.peak is not None
