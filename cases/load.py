"""How is a case read from a file? Every key of the TOML and JSON forms is read and checked.

Both forms have the same keys: TOML under ``[[case]]``, JSON in a list. Refuses unknown keys and
values with `BadInput`, its only error. Refuses to know frameworks.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, cast, get_args

from cases import expectations, meshes, program, typed_fields
from cases.errors import Where, format_value
from cases.inputs import DeclaredTensor, find_view, read_input, read_layout
from cases.mesh_derivation import DerivedMesh
from cases.meshes import MeshStepResults
from cases.model import PASSES, Case, Input, Layout, Mesh, MeshStep, Mode, Question, Step, slug
from cases.ops import OPS
from cases.program import TensorType, WrittenStep
from cases.recipes import RECIPES
from cases.recipes.layouts import observed_names, unsharded_names
from cases.recipes.recipe_reader import read_recipe

KEYS = (
    "id", "source", "date", "kind", "notes", "tags", "insensitive",
    "mesh", "devices", "mesh_steps", "inputs", "program", "recipe", "to",
    "context", "mode", "fresh", "check", *expectations.KEYS,
)  # fmt: skip

CONTEXTS = ("loss_parallel",)
MODES: tuple[Mode, ...] = get_args(Mode)
# Earlier releases called a dry run by this name.
_OLD_MODE = "plan"

_ID = re.compile(r"[A-Za-z0-9._/-]{1,120}")


def load(path: Path) -> tuple[Case, ...]:
    """The cases of a .toml or .json file, or of all such files below a folder, in path order.

    Raises:
        BadInput: there are no cases, or one is invalid.
    """
    # Unlike Path.is_dir, this never raises.
    if not os.path.isdir(path):
        cases = _load_file(path)
    else:
        files = sorted(one for one in path.rglob("*") if one.suffix in (".toml", ".json"))
        if not files:
            raise Where(str(path)).error("no .toml or .json file", "at least one")
        cases = [case for file in files for case in _load_file(file)]
    check_unique(cases)
    return tuple(cases)


def check_unique(cases: Iterable[Case]) -> None:
    """Refuses two cases with the same id or the same test id.

    Raises:
        BadInput: the second of them.
    """
    seen: dict[str, Case] = {}
    for case in cases:
        first = seen.setdefault(slug(case.id), case)
        if first is case:
            continue
        where = Where(case.file, case.id, ("id",))
        if first.id == case.id:
            raise where.error(f"an id that {first.file} has already", "a unique id")
        found = f"an id with the test id {slug(case.id)!r}, like {first.id!r} of {first.file}"
        raise where.error(found, "a unique test id")


def _load_file(path: Path) -> list[Case]:
    where = Where(str(path))
    if path.suffix == ".json":
        listed = typed_fields.items(typed_fields.read_json(path), where, "a list of cases")
        places = [where.at(i) for i in range(len(listed))]
        # This key says what releases did when the cases were collected.
        listed = [_without(one, "seen") for one in listed]
    elif path.suffix == ".toml":
        tables = typed_fields.table(typed_fields.read_toml(path), where, ("case",))
        listed = typed_fields.items(
            tables.get("case", []), where.at("case"), "tables, each [[case]]"
        )
        places = [where.at("case", i) for i in range(len(listed))]
    else:
        raise where.error(
            f"suffix {format_value(path.suffix)}", ".toml or .json, or a folder of them"
        )
    if not listed:
        raise where.error("no cases", "at least one")
    return [read_case(one, str(path), place) for one, place in zip(listed, places, strict=True)]


def _without(raw: Any, key: str) -> Any:
    return {k: v for k, v in raw.items() if k != key} if isinstance(raw, dict) else raw


def read_case(raw: Any, file: str, place: Where) -> Case:
    """The case of one table at ``place`` in ``file``. Its family is the name of the file.

    Raises:
        BadInput: the case is invalid.
    """
    table = typed_fields.table(raw, place)
    if "id" not in table:
        raise place.error("no id", "id, a string")
    wanted = "1 to 120 of A-Z a-z 0-9 . _ / -"
    case_id = typed_fields.text(table["id"], place.at("id"), wanted)
    if not _ID.fullmatch(case_id):
        raise place.at("id").error(format_value(case_id), wanted)
    where = Where(file, case_id)
    typed_fields.table(table, where, KEYS)
    said = {
        key: typed_fields.text(table.get(key, ""), where.at(key))
        for key in ("source", "kind", "notes", "insensitive")
    }
    tags = frozenset(typed_fields.texts(table.get("tags", []), where.at("tags")))
    mode = _read_mode(table.get("mode", "real"), where.at("mode"))
    context = table.get("context")
    if context is not None:
        typed_fields.one_of(context, where.at("context"), "a known context", CONTEXTS)
    if "mesh" not in table:
        raise where.error("no mesh", "mesh, such as {x = 4}")
    mesh = meshes.read_mesh(table["mesh"], table.get("devices"), mode, where)
    derived = _derived(table, mesh, where)
    mesh_steps, views = derived.steps, derived.views
    recipe, shown_of_it = None, dict[str, DeclaredTensor]()
    if "recipe" in table:
        recipe, shown_of_it = read_recipe(table, mesh, mode, where)
    inputs, tensors = _inputs(table.get("inputs", {}), mesh, views, mode, where.at("inputs"))
    written = program.read_program(table.get("program", []), where.at("program"))
    steps = _steps(written, table.get("to", {}), mesh, views, tensors, mode, where)
    # A mesh step changes a framework's registry of meshes, also for later cases.
    fresh = bool(mesh_steps) or "state" in tags
    _check_after(mesh_steps, tensors, where.at("mesh_steps"))
    tensors |= shown_of_it
    counted = PASSES if recipe else (*tensors,)
    expectation = expectations.read_expectation(table, tensors, counted, views, mesh, mode, where)
    told_of = (*views, *derived.equal, *filter(None, (expectation.refused,)))
    checked = _check(table, written, inputs, told_of, tensors, where)
    if recipe is not None:
        row = RECIPES[recipe.name]
        checked = (
            observed_names(row)
            if mode == "dry run"
            else (*observed_names(row), *unsharded_names(row))
        )
    # Everything in the expectation is checked, even if `check` does not list it.
    known = (*tensors, *views) if recipe is None else ()
    checked += tuple(
        name
        for name in known
        if name in expectations.names_in_expectation(expectation) - {*checked}
    )
    question = Question(
        id=case_id,
        mesh=mesh,
        inputs=inputs,
        steps=steps,
        check=checked,
        mesh_steps=mesh_steps,
        context=context,
        mode=mode,
        recipe=recipe,
        fresh=typed_fields.flag(table.get("fresh", fresh), where.at("fresh")),
    )
    return Case(
        question=question,
        expectation=expectation,
        family=Path(file).stem,
        file=file,
        date=_date(table.get("date", ""), where.at("date")),
        tags=tags,
        **said,
    )


def _read_mode(value: Any, where: Where) -> Mode:
    value = "dry run" if value == _OLD_MODE else value
    return cast(Mode, typed_fields.one_of(value, where, "a mode", MODES))


def _date(value: Any, where: Where) -> str:
    if type(value) is datetime.date:
        return value.isoformat()
    wanted = "a date such as 2025-09-17"
    text = typed_fields.text(value, where, wanted)
    try:
        if text and datetime.date.fromisoformat(text).isoformat() != text:
            raise ValueError
    except ValueError:
        raise where.error(format_value(text), wanted) from None
    return text


def _derived(table: dict[str, Any], mesh: Mesh, where: Where) -> MeshStepResults:
    """What the mesh steps make. No tensors may follow a step that has to be refused."""
    if "refused" in table:
        for other in ("inputs", "program", "recipe"):
            typed_fields.exclusive(table, "refused", other, where)
    refused = typed_fields.text(
        table.get("refused", ""), where.at("refused"), "the name of a mesh step"
    )
    return meshes.read_steps(table.get("mesh_steps", []), mesh, where.at("mesh_steps"), refused)


def _inputs(
    raw: Any, mesh: Mesh, views: dict[str, DerivedMesh], mode: str, where: Where
) -> tuple[tuple[Input, ...], dict[str, DeclaredTensor]]:
    inputs, tensors = [], {}
    for name, one in typed_fields.table(raw, where).items():
        place = where.at(name)
        typed_fields.identifier(name, place)
        if name in views:
            raise place.error("the name of a mesh step", "a name not taken")
        made, tensors[name] = read_input(name, one, mesh, views, mode, place)
        inputs.append(made)
    return tuple(inputs), tensors


def _steps(
    written: tuple[WrittenStep, ...],
    to: Any,
    mesh: Mesh,
    views: dict[str, DerivedMesh],
    tensors: dict[str, DeclaredTensor],
    mode: str,
    where: Where,
) -> tuple[Step, ...]:
    """The steps of a program. Adds their results to ``tensors``."""
    asked = typed_fields.table(to, where.at("to"))
    results = [one.result for one in written]
    for name in asked:
        if name not in results:
            wanted = f"a result: {', '.join(results) or 'there is none'}"
            raise where.at("to").error(f"name {format_value(name)}", wanted)
    steps: list[Step] = []
    inputs = tuple(tensors)
    for i, one in enumerate(written):
        if one.result in tensors or one.result in views:
            raise one.where.error(f"{one.result!r} again", "a new name for the result")
        known = {name: tensor.typed for name, tensor in tensors.items()}
        row = program.check_step(one, known, set(results[i:]))
        if one.op == "grad":
            _check_grad(one, steps, inputs)
        made = program.infer_result(one, row, known, one.where)
        program.check_size(made, mode, one.where)
        first = next((tensors[arg] for arg in one.operands), None)
        on = first.mesh if first else mesh
        if "view" in one.params:
            on = find_view(one.params["view"], mesh, views, one.where)
        _check_distinct(one, on)
        layout = _asked(one, asked, on, made, where)
        steps.append(Step(one.result, one.op, one.args, one.params, layout))
        tensors[one.result] = DeclaredTensor(made, on, layout)
    return tuple(steps)


def _check_distinct(step: WrittenStep, mesh: Mesh) -> None:
    """Refuses seeds that differ along an axis that the mesh does not have."""
    for axis in step.params.get("distinct", ()):
        if axis not in mesh.names:
            raise step.where.error(f"distinct axis {axis!r}", "one of " + ", ".join(mesh.names))


def _check_grad(step: WrittenStep, before: list[Step], inputs: tuple[str, ...]) -> None:
    """Refuses a gradient of a tensor that was not made from the given input."""
    of, by = step.args
    if by not in inputs:
        raise step.where.error(
            f"the gradient by {format_value(by)}", f"an input: {', '.join(inputs)}"
        )
    made_of = {one.result: one.args for one in before}
    reached, waiting = set[object](), [of]
    while waiting:
        this = waiting.pop()
        reached.add(this)
        waiting += made_of.get(str(this), ())
    if of not in made_of or by not in reached:
        raise step.where.error(
            f"the gradient of {format_value(of)} by {format_value(by)}", f"a result of {by}"
        )
    on_the_way = [one for one in before if one.result in reached]
    if any(one.op == "grad" for one in on_the_way):
        raise step.where.error("the gradient of a gradient", "the gradient of a value")
    if any("padding_row" in one.params for one in on_the_way):
        # The padding row changes no value, so finite differences do not show it.
        raise step.where.error("a gradient through an embedding with padding_row", "one without")


def _check_after(
    steps: tuple[MeshStep, ...], tensors: dict[str, DeclaredTensor], where: Where
) -> None:
    for i, step in enumerate(steps):
        if step.result in tensors:
            raise where.at(i, 0).error("the name of an input or result", "a name not taken")
        if step.after and step.after not in tensors:
            wanted = "an input or a result: " + (", ".join(tensors) or "there is none")
            raise where.at(i, 3, "after").error(format_value(step.after), wanted)


def _asked(
    step: WrittenStep, to: dict[str, Any], mesh: Mesh, made: TensorType, where: Where
) -> Layout | None:
    ndim = len(made.shape)
    if step.layout is not None:
        layout = read_layout(step.layout, mesh, ndim, step.asked_at)
        place = where.at("to", step.result)
        if step.result in to and read_layout(to[step.result], mesh, ndim, place) != layout:
            raise place.error("a second layout", "the one in the program")
        return layout
    if step.result in to:
        return read_layout(to[step.result], mesh, ndim, where.at("to", step.result))
    if step.op in OPS and OPS[step.op].places:
        raise step.where.error("no layout", "a PartitionSpec, or placements by axis")
    return None


def _check(
    table: dict[str, Any],
    written: tuple[WrittenStep, ...],
    inputs: tuple[Input, ...],
    views: Collection[str],
    tensors: dict[str, DeclaredTensor],
    where: Where,
) -> tuple[str, ...]:
    """The names to judge: `check` if given, else all named results, else inputs, else meshes."""
    if "check" not in table:
        names = tuple(one.result for one in written if one.named)
        names = names or tuple(given.name for given in inputs) or tuple(views)
        if not names and "recipe" not in table:
            raise where.error("no inputs, program, mesh_steps or recipe", "something to check")
        return names
    place = where.at("check")
    names = typed_fields.texts(table["check"], place, "a list of names")
    if not names:
        raise place.error("an empty list", "at least one name")
    for i, name in enumerate(names):
        if name in names[:i]:
            raise place.at(i).error(f"{name!r} again", "each name once")
        if name not in tensors and name not in views:
            wanted = "an input, a result or a derived mesh: " + ", ".join([*tensors, *views])
            raise place.at(i).error(format_value(name), wanted)
    return names
