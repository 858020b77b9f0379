"""Which line of Python makes a mesh in JAX, or derives one from another?

JAX has no derived meshes. Here a derived mesh is a `NamedSharding`: a mesh over all devices, and
those of its axes that the derived mesh has. This module does not import jax: lines are text here.
"""

from __future__ import annotations

import math

import msgspec

from adapters.jax_xla.names import has_name
from cases.mesh_derivation import meshes_of_tensors
from cases.model import STACKED_AXIS, Mesh, MeshStep, Question

Axes = tuple[tuple[str, int], ...]

# Joins axes of different meshes into one mesh. Devices with the same indices along these axes form
# a group. The first axis of the new mesh runs through a group. If axes overlap, the groups have
# different sizes, and NumPy raises an error.
_JOINED = f"""
def joined(*views):
    axes = [(axis, view.mesh.shape[axis]) for view in views for axis in view.spec]
    sizes = [size for _, size in axes]
    rows = [
        view.devices_indices_map(tuple(view.mesh.shape[axis] for axis in view.spec))
        for view in views
    ]
    at = {{
        one: tuple(index.start or 0 for row in rows for index in row[one])
        for one in views[0].mesh.devices.flat
    }}
    groups = np.array([[one for one in at if at[one] == where] for where in np.ndindex(*sizes)])
    names = ({STACKED_AXIS!r}, *(axis for axis, _ in axes))
    return jax.sharding.Mesh(groups.T.reshape(-1, *sizes), names<kinds>)
"""


class _View(msgspec.Struct, frozen=True):
    """A derived mesh: the text and the axes of the full mesh, and the names of the used axes."""

    mesh: str
    axes: Axes
    counts: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.axes)


def joined_function(release: str) -> str:
    """The source of the function ``joined``, which lines call, for a release of JAX."""
    kinds = ", axis_types=views[0].mesh.axis_types[:1] * len(names)"
    return _JOINED.replace("<kinds>", kinds if has_name("jax.sharding.AxisType", release) else "")


def mesh_source(mesh: Mesh, kind: str) -> str:
    """The expression of a mesh. ``kind``: the type of all axes, such as AxisType.Auto, or ""."""
    count = mesh.size
    chosen = f"[:{count}]" if mesh.devices == tuple(range(count)) else f"[{list(mesh.devices)}]"
    return _format_mesh(f"np.array(jax.devices()){chosen}.reshape{mesh.shape!r}", mesh.names, kind)


def _format_mesh(devices: str, names: tuple[str, ...], kind: str) -> str:
    kinds = f", axis_types=({kind},) * {len(names)}" if kind else ""
    return f"jax.sharding.Mesh({devices}, {names!r}{kinds})"


def _format_sharding(mesh: str, entries: tuple[object, ...]) -> str:
    return f"NamedSharding({mesh}, P({', '.join(map(repr, entries))}))"


def derived_mesh_sources(
    question: Question, kind: str, variables: dict[str, str]
) -> list[tuple[str, str]]:
    """The name and the expression of each mesh step, in order.

    ``kind``: see `mesh_source`. ``variables``: the Python name of each derived mesh. The mesh of
    the question is ``mesh``. An invalid step is not rejected here, so that JAX can raise an error.
    """
    found: list[tuple[str, str]] = []
    made: dict[str, _View] = {}
    for step in question.mesh_steps:
        if step.op == "mesh_equal":
            found.append((step.result, " == ".join(variables[name] for name in step.axes)))
            continue
        of, stated = step.params.get("of"), step.params.get("from")
        base = _View("mesh", question.mesh.axes, question.mesh.names)
        if isinstance(stated, dict):
            root = Mesh(tuple(stated.items()), question.mesh.devices)
            base = _View(mesh_source(root, kind), root.axes, root.names)
        elif isinstance(of, str):
            base = made[of]
        text, view = _step(step, base, made, kind, variables[step.result])
        found.append((step.result, text))
        if view is not None:
            made[step.result] = view
    return found


def _step(
    step: MeshStep, base: _View, made: dict[str, _View], kind: str, variable: str
) -> tuple[str, _View | None]:
    """The expression of a step, and the mesh that it makes. None if the step is invalid."""
    match step.op:
        case "mesh_unflatten":
            return _unflatten(step, base, kind, variable)
        case "mesh_flatten":
            return _flatten(step, base, kind, variable)
    parts: list[_View] = []
    for axis in step.axes:
        # A flattened axis has the name of the step that made it.
        part = made.get(axis, base) if step.op == "mesh_concatenate" else base
        if axis not in base.names and axis in made and made[axis].counts == (axis,):
            part = made[axis]
        counts = part.counts if step.op == "mesh_concatenate" and axis in made else (axis,)
        parts.append(_View(part.mesh, part.axes, counts))
    names = tuple(name for part in parts for name in part.counts)
    for one in (base, *parts):
        alone = all(part.mesh == one.mesh for part in parts)
        if alone or (step.op == "mesh_slice" and set(names) <= set(one.names)):
            return _format_sharding(one.mesh, names), _View(one.mesh, one.axes, names)
    sizes = {name: size for part in parts for name, size in part.axes}
    axes = tuple((name, sizes.get(name, 1)) for name in names)
    rest = math.prod(size for _, size in base.axes) // max(1, math.prod(s for _, s in axes))
    views = ", ".join(_format_sharding(part.mesh, part.counts) for part in parts)
    text = _format_sharding(f"joined({views})", names)
    return text, _View(f"{variable}.mesh", ((STACKED_AXIS, rest), *axes), names)


def _flatten(step: MeshStep, base: _View, kind: str, variable: str) -> tuple[str, _View | None]:
    if len(set(step.axes)) < len(step.axes) or not set(step.axes) <= set(base.names):
        return _format_sharding(base.mesh, (step.axes,)), None
    places = [base.names.index(axis) for axis in step.axes]
    size = math.prod(base.axes[place][1] for place in places)
    rest = [place for place in range(len(base.axes)) if place not in places]
    first = len(rest)
    if places == list(range(places[0], places[0] + len(places))):
        # Adjacent axes in mesh order are merged in place. The devices keep their order.
        first = places[0]
    kept: list[tuple[str, int]] = [base.axes[place] for place in rest]
    if step.result in dict(kept):
        # A mesh cannot have two axes of one name, so the other axes are merged into one.
        first, kept = len(rest), [(STACKED_AXIS, math.prod(n for _, n in kept))]
    order = [*rest[:first], *places, *rest[first:]]
    turned = "" if order == sorted(order) else f".transpose{tuple(order)!r}"
    axes = (*kept[:first], (step.result, size), *kept[first:])
    devices = f"{base.mesh}.devices{turned}.reshape{tuple(n for _, n in axes)!r}"
    text = _format_sharding(
        _format_mesh(devices, tuple(name for name, _ in axes), kind), (step.result,)
    )
    return text, _View(f"{variable}.mesh", axes, (step.result,))


def _unflatten(step: MeshStep, base: _View, kind: str, variable: str) -> tuple[str, _View | None]:
    inner = step.params["axes"]
    assert isinstance(inner, dict)
    (axis,) = step.axes
    if axis not in base.names:
        return _format_sharding(base.mesh, (axis,)), None
    axes: list[tuple[str, int]] = []
    for one in base.axes:
        axes += inner.items() if one[0] == axis else [one]
    names = tuple(name for name, _ in axes)
    counts = tuple(
        name for one in base.counts for name in (tuple(inner) if one == axis else (one,))
    )
    devices = f"{base.mesh}.devices.reshape{tuple(size for _, size in axes)!r}"
    return _format_sharding(_format_mesh(devices, names, kind), counts), _View(
        f"{variable}.mesh", tuple(axes), counts
    )


def mesh_texts(
    question: Question, mesh_names: dict[Mesh, str], variables: dict[str, str]
) -> dict[str, str]:
    """The text of the mesh of each input and result.

    ``variables``: the Python names of derived meshes. ``mesh_names``: those of all other meshes.
    """
    on = meshes_of_tensors(question)
    found = {
        given.name: f"{variables[given.view]}.mesh" if given.view else mesh_names[on[given.name]]
        for given in question.inputs
    }
    for step in question.steps:
        first = next(iter(step.operands), None)
        view = step.params.get("view")
        home = "mesh" if first is None else found[first]
        found[step.result] = f"{variables[view]}.mesh" if isinstance(view, str) else home
    return found
