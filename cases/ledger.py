"""Why do frameworks diverge? The causes of a ledger: what each looks like, where, and why.

A ``[[cause]]`` describes a fault by facts of the case and the step, and by its looks: the kind of
observation, the message of a refusal, the relation of a wrong value to the right one. The records
show in which cases and releases it occurs. A ``[[documented]]`` entry has the same form. It covers
what a framework's documentation calls undefined or leaves to the caller. Refuses to know answers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from cases import typed_fields
from cases.arrays import DTYPES
from cases.errors import Where, format_value
from cases.facts import Facts
from cases.facts import SplitWhere as Split
from cases.model import REDUCTIONS, Case, Recipe
from cases.recipes import RECIPES

# The project's own ledger. All files of the folder belong to it.
LEDGER = Path(__file__).with_name("divergences")

Aspect = Literal[
    "ending", "soundness", "global", "gradients", "shards", "layout", "collectives", "effects",
    "meshes", "dry run", "record",
]  # fmt: skip
ASPECTS: tuple[Aspect, ...] = get_args(Aspect)

Observed = Literal[
    "wrong value", "wrong dtype", "wrong shape", "wrong shard", "wrong offset", "wrong layout",
    "wrong mesh", "wrong count", "ranks differ", "counters disagree", "missing", "other plan",
    "refused", "not refused", "crashed", "hung", "dry run differs",
]  # fmt: skip
OBSERVATIONS: tuple[Observed, ...] = get_args(Observed)

# How a redistribution plan differs from the implied one, by its collectives alone.
RedistributionPlanKind = Literal[
    "fires where nothing is implied", "fires nothing", "permutes", "more", "larger operands",
    "fewer", "gathers", "exchanges", "reduces", "gathers, exchanges and reduces",
    "over groups that are no axes",
]  # fmt: skip
PLANS: tuple[RedistributionPlanKind, ...] = get_args(RedistributionPlanKind)

# How a wrong value is related to the right one. `suites.relations` defines each relation.
Relation = Literal[
    "times a number", "plus a number", "NaN", "elements permuted", "zeros", "one addend",
    "operand unchanged", "another shape", "some elements", "all elements",
]  # fmt: skip
RELATIONS: tuple[Relation, ...] = get_args(Relation)

KEYS = (
    "id", "subject", "observed", "aspect", "message", "relation", "cases", "why", "link",
    "unreported",
)  # fmt: skip
_DUE = ("id", "subject", "observed", "why")

_ID = re.compile(r"[a-z0-9._-]{1,120}")
_LINK = re.compile(r"https?://[^\s/]+(/\S*)?")


class CasePattern(msgspec.Struct, frozen=True):
    """Which cases can show a cause: those that fit every given field.

    ``step``: patterns of the op at fault, which is the op of the step, of an unchecked step before
    it, or of a step that a gradient goes through. "input", "full" (materialising) and "program"
    stand for faults outside an op. ``only``: each op of the program fits one of these patterns;
    "nothing" stands for no ops. ``recipe``, ``context``, ``plan``, ``indivisible``: one of these.
    ``axes`` and ``devices``: how many of them the mesh has. ``dtype``: an input has one of these.
    ``partial``: one of these reductions is pending. `Facts` describes the other fields.
    """

    step: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    recipe: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    axes: int | None = None
    devices: int | None = None
    ascending: bool | None = None
    minor_first: bool | None = None
    dtype: tuple[str, ...] = ()
    uneven: bool | None = None
    irregular: bool | None = None
    indivisible: tuple[str, ...] = ()
    empty: bool | None = None
    newly_partial: bool | None = None
    swaps_partial: bool | None = None
    partial: tuple[str, ...] = ()
    several_meshes: bool | None = None
    repeated: bool | None = None
    number: bool | None = None
    random: bool | None = None


class Cause(msgspec.Struct, frozen=True):
    """Why something diverges, and what it looks like.

    ``subject``: subjects, or a framework for all its routes. ``observed`` and ``aspect``: one of
    these. ``message``: a pattern in the message of a refusal, a crash, or the rank that raised
    before a hang. ``relation``: how a wrong value is related to the right one. ``unreported``: the
    day on which a search found no public report. ``documented``: the framework documents this
    behaviour, so it is not wrong.
    """

    id: str
    subject: tuple[str, ...]
    observed: tuple[str, ...]
    why: str
    aspect: tuple[str, ...] = ()
    message: str = ""
    relation: tuple[str, ...] = ()
    cases: CasePattern = CasePattern()
    link: str = ""
    unreported: str = ""
    documented: bool = False
    file: str = ""


def load_ledger(path: Path, subjects: Collection[str]) -> tuple[Cause, ...]:
    """The causes of a ledger, which may be empty. ``subjects``: all known subjects.

    ``path``: a file, or a folder whose ``.toml`` files make up one ledger.

    Raises:
        BadInput: a cause is invalid.
    """
    files = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    if not files:
        raise Where(str(path), noun="cause").error("no .toml file", "at least one")
    causes = [cause for file in files for cause in _file(file, subjects)]
    check_unique(causes)
    return tuple(causes)


def _file(path: Path, subjects: Collection[str]) -> list[Cause]:
    where = Where(str(path), noun="cause")
    kinds = ("cause", "documented")
    tables = typed_fields.table(typed_fields.read_toml(path, "cause"), where, kinds)
    causes = []
    for kind in kinds:
        listed = typed_fields.items(
            tables.get(kind, []), where.at(kind), f"tables, each [[{kind}]]"
        )
        for number, one in enumerate(listed):
            causes.append(_cause(one, where.at(kind, number), kind == "documented", subjects))
    return causes


def check_unique(causes: Iterable[Cause]) -> None:
    """Refuses two causes with the same id.

    Raises:
        BadInput: the second of them.
    """
    seen: dict[str, Cause] = {}
    for cause in causes:
        first = seen.setdefault(cause.id, cause)
        if first is not cause:
            where = Where(cause.file, cause.id, ("id",), "cause")
            raise where.error(f"an id that {first.file} has already", "a unique id")


def _cause(raw: Any, place: Where, documented: bool, subjects: Collection[str]) -> Cause:
    table = typed_fields.table(raw, place)
    if "id" not in table:
        raise place.error("no id", "id, a string")
    wanted = "1 to 120 of a-z 0-9 . _ -"
    id = typed_fields.text(table["id"], place.at("id"), wanted)
    if not _ID.fullmatch(id):
        raise place.at("id").error(format_value(id), wanted)
    where = Where(place.file, id, noun="cause")
    typed_fields.table(table, where, KEYS)
    for key in _DUE:
        if key not in table:
            raise where.error(f"no {key}", f"all of {', '.join(_DUE)}")
    why = typed_fields.text(table["why"], where.at("why"))
    if not why.strip():
        raise where.at("why").error("an empty string", "the reason, in a sentence or two")
    routes = tuple(dict.fromkeys((*subjects, *(one.partition("/")[0] for one in subjects))))
    observed = _known(table["observed"], where.at("observed"), "a known observation", OBSERVATIONS)
    cause = Cause(
        id,
        _known(table["subject"], where.at("subject"), "a subject or a framework", routes),
        observed,
        why,
        _known(table["aspect"], where.at("aspect"), "an aspect", ASPECTS)
        if "aspect" in table
        else (),
        _message(table, observed, where),
        _relation(table, observed, where),
        _named(table["cases"], where.at("cases")) if "cases" in table else CasePattern(),
        *_source(table, documented, where),
        documented,
        place.file,
    )
    if "other plan" not in observed and cause.cases.plan:
        raise where.at("cases", "plan").error("a kind of plan", 'none, or observed = "other plan"')
    return cause


def _message(table: dict[str, Any], observed: tuple[str, ...], where: Where) -> str:
    """The pattern of a message. A refusal must have one: its exception type says too little."""
    if "message" not in table:
        if "refused" in observed:
            raise where.error("no message", "message, a pattern of what the framework says")
        return ""
    place = where.at("message")
    text = typed_fields.text(table["message"], place)
    if not {"refused", "hung", "crashed", "dry run differs"} & {*observed}:
        wanted = "none: only a refusal, a hang, a crash or a dry run that differs has a message"
        raise place.error(format_value(text), wanted)
    try:
        empty = re.compile(text).search("") is not None
    except re.error as error:
        raise place.error(f"{format_value(text)} ({error})", "a regular expression") from None
    if empty:
        raise place.error(
            f"{format_value(text)}, which fits every message", "one that some messages do not fit"
        )
    return text


def _relation(table: dict[str, Any], observed: tuple[str, ...], where: Where) -> tuple[str, ...]:
    if "relation" not in table:
        if "wrong value" in observed:
            raise where.error("no relation", f"relation, one or more of {', '.join(RELATIONS)}")
        return ()
    place = where.at("relation")
    if "wrong value" not in observed:
        raise place.error("a relation", "none: only a wrong value has a relation")
    return _known(table["relation"], place, "a known relation", RELATIONS)


def _source(table: dict[str, Any], documented: bool, where: Where) -> tuple[str, str]:
    """The link, and the day on which a search found none. At most one of them is given."""
    link = typed_fields.text(table.get("link", ""), where.at("link"))
    if "link" in table and not _LINK.fullmatch(link):
        raise where.at("link").error(format_value(link), "a link with http:// or https://")
    looked = typed_fields.text(table.get("unreported", ""), where.at("unreported"))
    if "unreported" in table:
        try:
            date.fromisoformat(looked)
        except ValueError:
            wanted = "the day of the search, such as 2026-11-30"
            raise where.at("unreported").error(format_value(looked), wanted) from None
    if link and looked:
        raise where.error("link and unreported", "one of the two")
    if documented and not link:
        raise where.error("no link", "link, to what documents it")
    return link, looked


_FLAGS = (
    "ascending", "minor_first", "uneven", "irregular", "empty", "newly_partial", "swaps_partial",
    "several_meshes", "repeated", "number", "random",
)  # fmt: skip


def _named(raw: Any, where: Where) -> CasePattern:
    table = typed_fields.table(raw, where, CasePattern.__struct_fields__)
    if not table:
        raise where.error(
            "an empty table", f"at least one of {', '.join(CasePattern.__struct_fields__)}"
        )
    given: dict[str, Any] = {}
    for key, value in table.items():
        place = where.at(key)
        if key in ("step", "only", "context"):
            given[key] = _some(value, place)
        elif key in ("axes", "devices"):
            given[key] = typed_fields.integer(value, place, 1, "an integer of at least 1")
        elif key in _FLAGS:
            given[key] = typed_fields.flag(value, place)
        else:
            noun, known = _CLOSED[key]
            given[key] = _known(value, place, noun, known)
    return CasePattern(**given)


_CLOSED: dict[str, tuple[str, Collection[str]]] = {
    "recipe": ("a known recipe", RECIPES),
    "indivisible": ("where", get_args(Split)),
    "dtype": ("a known dtype", DTYPES),
    "partial": ("a reduction", REDUCTIONS),
    "plan": ("a kind of plan", PLANS),
}


def _some(value: Any, where: Where) -> tuple[str, ...]:
    texts = (
        (value,)
        if isinstance(value, str)
        else typed_fields.texts(value, where, "a string or strings")
    )
    if not texts:
        raise where.error("an empty list", "at least one string")
    return texts


def _known(value: Any, where: Where, noun: str, known: Collection[str]) -> tuple[str, ...]:
    return tuple(typed_fields.one_of(one, where, noun, known) for one in _some(value, where))


def can_show_in(cause: Cause, case: Case, fact: Facts, steps: Collection[str]) -> bool:
    """Whether a cause can show in a case at a step. This is known before anything runs.

    ``steps``: the ops that can be at fault. `CasePattern.step` has to fit one of them.
    """
    want, question = cause.cases, case.question
    mesh, recipe = question.mesh, question.recipe
    return (
        (not want.step or any(_fits(op, want.step) for op in steps))
        and (not want.only or all(_fits(op, want.only) for op in fact.ops or ("nothing",)))
        and _recipe_fits(want, recipe)
        and (not want.context or question.context in want.context)
        and want.axes in (None, len(mesh.axes))
        and want.devices in (None, mesh.size)
        and (not want.dtype or any(one.dtype in want.dtype for one in question.inputs))
        and (not want.indivisible or fact.indivisible in want.indivisible)
        and all(getattr(want, flag) in (None, getattr(fact, flag)) for flag in _FLAGS)
        and (not want.partial or bool(fact.pending & {*want.partial}))
    )


def _fits(op: str, patterns: Collection[str]) -> bool:
    return any(fnmatchcase(op, pattern) for pattern in patterns)


def _recipe_fits(want: CasePattern, recipe: Recipe | None) -> bool:
    """Whether the recipe fits. A cause for another plan has to name the recipe."""
    if recipe is None:
        return not want.recipe
    return recipe.name in want.recipe or not (want.recipe or want.plan)
