"""What must an answer that ended well show, and what of it does it lack?

The route's promise and the question alone say so, and no adapter excuses itself from case to case.
Judges no value, and knows neither what is right nor how grave a lack is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from adapters.answer import Answer, Done, Observed
from adapters.protocol import Field, Promise
from adapters.reference.meshes import observe as observe_meshes
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Foreign, Layout, Question
from cases.ops import OPS
from cases.recipes import recipe_of
from cases.recipes.layouts import observed_names as of_sharded
from cases.recipes.layouts import unsharded_names as of_unsharded

Fields = tuple[Field, ...]

# The fields that none of these can have, on whatever route.
_OF_INPUT = frozenset({"collectives", "program"})
_OF_STEP = frozenset({"program"})
# Each device has a plain tensor for itself, so it is on no mesh. It may be the whole everywhere.
_OF_PLAIN = frozenset({"program", "layout", "offsets", "full_collectives", "full"})
_OF_WHOLE = _OF_PLAIN - {"full"}
# A training step is one program; no single result has collectives of its own.
_OF_RECIPE = frozenset({"program", "collectives", "full_collectives"})
# The same step on one device has only values.
_OF_UNSHARDED = _OF_RECIPE | {"layout", "shards", "offsets", "local"}

# Ops that leave sharding for plain tensors. Of the last two, each device has the whole.
_LEAVING = ("to_local", "item", "full_tensor")
_WHOLE = _LEAVING[1:]


def required_fields(
    question: Question, subject: str, promises: Mapping[str, Promise]
) -> dict[str, Fields]:
    """The fields that an answer must show, by name: of every input and result that is checked.

    A derived mesh m also has m/a for each axis a. Under "" are the fields of the whole program.
    """
    promise = promises.get(subject, Promise())
    promised = promise.real if question.mode == "real" else promise.dry_run
    if question.recipe is not None:
        return _of_recipe(question, promised)
    inputs = {given.name: given.layout for given in question.inputs}
    steps = {step.result: step.to for step in question.steps}
    used = {arg for step in question.steps for arg in step.args} & steps.keys()
    plain, whole = _find_plain_results(question)
    meshes = {step.result for step in question.mesh_steps}
    found: dict[str, Fields] = {}
    for name in question.check:
        if name in meshes:
            found |= _of_mesh(question, name, promised)
            continue
        without = set(_OF_INPUT if name in inputs else _OF_STEP)
        if name in plain:
            without |= _OF_WHOLE if name in whole else _OF_PLAIN
        if name in used:
            without |= {*promise.unless_used}
        known = inputs.get(name) or steps.get(name)
        if known is not None and known.partial:
            without |= {*promise.unless_partial}
        found[name] = tuple(field for field in promised if field not in without)
    if question.steps and "program" in promised:
        found[""] = ("program",)
    return found


def drop_partial_lists(question: Question, answer: Answer) -> Answer:
    """The answer without lists of shards or offsets that do not have one for each mesh position.

    Nothing tells which device lacks one, so the whole list counts as missing.
    """
    if question.mode != "real":
        return answer
    sizes = {name: mesh.size for name, mesh in meshes_of_tensors(question).items()}
    seen = []
    for one in answer.seen:
        wrong = {
            field: None
            for field in ("shards", "offsets")
            if one.name in sizes
            and (given := getattr(one, field)) is not None
            and len(given) != sizes[one.name]
        }
        seen.append(msgspec.structs.replace(one, **wrong) if wrong else one)
    return msgspec.structs.replace(answer, seen=tuple(seen))


def find_missing_fields(
    question: Question, answer: Answer, promises: Mapping[str, Promise]
) -> list[tuple[str, Field | None]]:
    """The `required_fields` that an answer which ended well does not show, by name.

    The field None stands for the whole input or result. A layout that the answer shows may have
    more pending reductions than the question. A framework's own kind of layout may be that of a
    tensor on some of the devices only.
    """
    if not isinstance(answer.end, Done):
        return []
    promise = promises.get(answer.subject, Promise())
    seen = {one.name: one for one in answer.seen}
    found: list[tuple[str, Field | None]] = []
    for name, fields in required_fields(question, answer.subject, promises).items():
        if not name:
            found += [("", field) for field in fields if answer.program is None]
        elif name not in seen:
            found.append((name, None))
        else:
            one = seen[name]
            owes = isinstance(one.layout, Layout) and bool(one.layout.partial)
            excused = promise.unless_partial if owes else ()
            found += [
                (name, field)
                for field in fields
                if field not in excused and _is_absent(one, field, question.mode == "real")
            ]
    return found


def _of_recipe(question: Question, promised: Fields) -> dict[str, Fields]:
    row, real = recipe_of(question), question.mode == "real"
    # The step on one device has values alone, and a dry run has none.
    alone = of_unsharded(row) if real else ()
    found = {name: _remove_fields(promised, _OF_RECIPE) for name in of_sharded(row)}
    found |= {name: _remove_fields(promised, _OF_UNSHARDED) for name in alone}
    if {"collectives", "program"} & {*promised}:
        found[""] = ("program",)
    return found


def _of_mesh(question: Question, name: str, promised: Fields) -> dict[str, Fields]:
    """Whether it is shown by its grid, which is no value, so that a dry run shows it too."""
    shown: Fields = ("dtype", "shards") if promised else ()
    coordinates: Fields = ("offsets",) if promised and "offsets" in promised else ()
    found: dict[str, Fields] = {name: shown}
    for one in observe_meshes(question):
        if one.name.partition("/")[0] == name:
            found[one.name] = shown + (coordinates if one.offsets is not None else ())
    return found


def _remove_fields(promised: Fields, fields: frozenset[str]) -> Fields:
    return tuple(field for field in promised if field not in fields)


def _find_plain_results(question: Question) -> tuple[set[str], set[str]]:
    """The results that are plain tensors, and those of them that are whole on every device."""
    plain: set[str] = set()
    whole: set[str] = set()
    for step in question.steps:
        names = {*step.operands}
        if OPS[step.op].places:
            continue
        for found, ops in ((plain, _LEAVING), (whole, _WHOLE)):
            if step.op in ops or (names and names <= found):
                found.add(step.result)
    return plain, whole


def _is_absent(one: Observed, field: Field, real: bool) -> bool:
    value: Any = getattr(one, field)
    if field in ("shards", "offsets") and value is not None:
        # A dry run shows one device's view.
        some = not real or isinstance(one.layout, Foreign)
        return all(part is None for part in value) if some else None in value
    if field in ("dtype", "full"):
        return not value
    return value is None
