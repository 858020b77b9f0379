"""Which divergences are known? Entries and rules of a ledger: which cases, in which releases.

An entry (``[[divergence]]``) holds for every case that it names. It names cases by what is
written in them, never by what a framework did, so that the ledger can be held against the
catalogue with nothing run. A rule (``[[rule]]``) explains a kind of divergence wherever it
shows, and need not show. Judging whether an entry still holds is not done here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from cases import forms
from cases.arrays import DTYPES
from cases.errors import Where, shown
from cases.facts import Facts, facts
from cases.facts import Where as Split
from cases.model import REDUCTIONS, Case, slug
from cases.recipes import RECIPES
from cases.recipes.form import PASSES

# The project's own: a folder, whose files are told apart by releases only.
LEDGER = Path(__file__).with_name("divergences")

Aspect = Literal[
    "soundness",
    "global",
    "shards",
    "layout",
    "collectives",
    "effects",
    "gradients",
    "meshes",
    "plan",
]
ASPECTS: tuple[Aspect, ...] = get_args(Aspect)

# How an observation begins, and what must follow after ": "; "" where nothing may.
OBSERVED = {
    "wrong value": "",
    "wrong shard": "",
    "wrong offset": "",
    "wrong layout": "",
    "wrong count": "",
    "ranks differ": "",
    "counters disagree": "",
    "unsupported": "",
    "hung": "",
    "crashed": "",
    "refused": "the type of the exception",
    "plan": "the kind of plan",
    "rule": "the name of a lowering rule",
    "layout": "the kind of difference",
    # Of a plan, from what the same release does with data.
    "differs": "in what",
}

KEYS = ("id", "aspect", "subject", "versions", "cases", "observed", "why", "link")

_ID = re.compile(r"[a-z0-9._-]{1,120}")
_PATTERN = re.compile(r"[a-z0-9._*?\[\]!-]+")
_DETAIL = re.compile(r"\S(.*\S)?")
_LINK = re.compile(r"https?://[^\s/]+(/\S*)?")


class Named(msgspec.Struct, frozen=True):
    """Which cases an entry names: those for which everything given is so; all, if nothing is.

    ``ids``: patterns, of which one must match the case's `slug`. ``tags``: all must be the
    case's. ``family``: one of these. ``recipe``: one of these; another plan of a recipe is only
    ever known by its name. ``step``: one of these is the result or op of a step, an input, or
    "y/full" for materialising y, "full" for materialising anything.
    ``axes`` and ``devices``: how many the mesh has. ``dtype``: that of some input. ``partial``:
    a reduction that something owes. ``indivisible``: one of these. The others as in `Facts`.
    """

    ids: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    recipe: tuple[str, ...] = ()
    step: tuple[str, ...] = ()
    axes: int | None = None
    devices: int | None = None
    ascending: bool | None = None
    dtype: str | None = None
    uneven: bool | None = None
    indivisible: tuple[str, ...] = ()
    empty: bool | None = None
    newly_partial: bool | None = None
    swaps_partial: bool | None = None
    partial: str | None = None


class Entry(msgspec.Struct, frozen=True):
    """One known divergence: where it shows, what is observed, and why.

    ``observed`` is one of `OBSERVED`, with its detail where one is due. ``rule``: it may
    show in the cases that it names, rather than must.
    """

    id: str
    aspect: Aspect
    subject: str
    versions: SpecifierSet
    cases: Named
    observed: str
    why: str
    link: str = ""
    rule: bool = False
    file: str = ""


def load_ledger(path: Path, subjects: Collection[str]) -> tuple[Entry, ...]:
    """The entries and rules of a ledger, which may be none. ``subjects``: those that exist.

    ``path``: a file, or a folder, all of whose ``.toml`` files are one ledger.

    Raises:
        BadInput: anything wrong with an entry: file, entry, key, found, wanted.
    """
    files = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    if not files:
        raise Where(str(path), noun="entry").bad("no .toml file", "at least one")
    entries = [entry for file in files for entry in _file(file, subjects)]
    check_unique(entries)
    return tuple(entries)


def _file(path: Path, subjects: Collection[str]) -> list[Entry]:
    where = Where(str(path), noun="entry")
    tables = forms.table(forms.read_toml(path, "entry"), where, ("divergence", "rule"))
    entries = []
    for kind in ("divergence", "rule"):
        listed = forms.items(tables.get(kind, []), where.at(kind), f"tables, each [[{kind}]]")
        entries += [
            _entry(one, where.at(kind, i), kind == "rule", subjects) for i, one in enumerate(listed)
        ]
    return entries


def check_unique(entries: Iterable[Entry]) -> None:
    """Refuses two entries with one id.

    Raises:
        BadInput: of the second of the two.
    """
    seen: dict[str, Entry] = {}
    for entry in entries:
        first = seen.setdefault(entry.id, entry)
        if first is not entry:
            where = Where(entry.file, entry.id, ("id",), "entry")
            raise where.bad(f"an id that {first.file} has already", "one of its own")


def _entry(raw: Any, place: Where, rule: bool, subjects: Collection[str]) -> Entry:
    table = forms.table(raw, place)
    if "id" not in table:
        raise place.bad("no id", "id, a string")
    wanted = "1 to 120 of a-z 0-9 . _ -"
    entry_id = forms.text(table["id"], place.at("id"), wanted)
    if not _ID.fullmatch(entry_id):
        raise place.at("id").bad(shown(entry_id), wanted)
    where = Where(place.file, entry_id, noun="entry")
    forms.table(table, where, KEYS)
    optional = ("versions", "link", "cases") if rule else ("versions", "link")
    for key in KEYS:
        if key not in table and key not in optional:
            raise where.bad(
                f"no {key}", f"all of {', '.join(k for k in KEYS if k not in optional)}"
            )
    why = forms.text(table["why"], where.at("why"))
    if not why.strip():
        raise where.at("why").bad("an empty string", "the reason, in a sentence or two")
    link = forms.text(table.get("link", ""), where.at("link"))
    if "link" in table and not _LINK.fullmatch(link):
        raise where.at("link").bad(shown(link), "a link with http:// or https://")
    return Entry(
        entry_id,
        cast(Aspect, forms.one_of(table["aspect"], where.at("aspect"), "an aspect", ASPECTS)),
        forms.one_of(table["subject"], where.at("subject"), "a known subject", subjects),
        _versions(table.get("versions", ""), where.at("versions")),
        _named(table["cases"], where.at("cases")) if "cases" in table else Named(),
        _observed(table["observed"], where.at("observed")),
        why,
        link,
        rule,
        place.file,
    )


def _versions(raw: Any, where: Where) -> SpecifierSet:
    wanted = "PEP 440 ranges such as '>=2.2,<2.9'"
    text = forms.text(raw, where, wanted)
    try:
        versions = SpecifierSet(text)
    except InvalidSpecifier:
        raise where.bad(shown(text), wanted) from None
    if "+" in text:
        raise where.bad(f"a local tag in {shown(text)}", "none: 2.13.0+cpu counts as 2.13.0")
    return versions


def _observed(raw: Any, where: Where) -> str:
    text = forms.text(raw, where)
    head, colon, detail = text.partition(": ")
    forms.one_of(head, where, "a known observation", OBSERVED)
    due = OBSERVED[head]
    if due and not _DETAIL.fullmatch(detail):
        raise where.bad(shown(text), f"'{head}: ' and {due}")
    if colon and not due:
        raise where.bad(shown(text), f"{head!r} alone")
    return text


def _named(raw: Any, where: Where) -> Named:
    known = ("id", *(field for field in Named.__struct_fields__ if field != "ids"))
    table = forms.table(raw, where, known)
    if not table:
        raise where.bad("an empty table", f"at least one of {', '.join(known)}")
    given: dict[str, Any] = {}
    for key, value in table.items():
        place = where.at(key)
        match key:
            case "id" | "tags" | "family" | "step":
                given["ids" if key == "id" else key] = _some(value, place)
            case "recipe":
                given[key] = _some(value, place)
                for one in given[key]:
                    forms.one_of(one, place, "a known recipe", RECIPES)
            case "axes" | "devices":
                given[key] = forms.integer(value, place, 1, "an integer of at least 1")
            case "ascending" | "uneven" | "empty" | "newly_partial" | "swaps_partial":
                given[key] = forms.flag(value, place)
            case "indivisible":
                given[key] = _some(value, place)
                for one in given[key]:
                    forms.one_of(one, place, "where", get_args(Split))
            case "dtype":
                given[key] = forms.one_of(value, place, "a known dtype", DTYPES)
            case "partial":
                given[key] = forms.one_of(value, place, "a reduction", REDUCTIONS)
    for pattern in given.get("ids", ()):
        if not _PATTERN.fullmatch(pattern):
            raise where.at("id").bad(shown(pattern), "a pattern of a-z 0-9 . _ - with * ? [ ]")
    return Named(**given)


def _some(value: Any, where: Where) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else forms.texts(value, where, "a string or strings")
    if not texts:
        raise where.bad("an empty list", "at least one string")
    return texts


def applies(entry: Entry, release: str) -> bool:
    """Whether an entry is about a release, such as "2.13.0+cpu"; local tags do not count.

    Pre-releases are ordered as PEP 440 has it: 2.14.0.dev1 is in ``>=2.13`` but, being
    neither 2.14 nor before it, in neither ``<2.14`` nor ``>=2.14``.

    Raises:
        packaging.version.InvalidVersion: not a PEP 440 version.
    """
    return entry.versions.contains(Version(Version(release).public), prereleases=True)


def names(entry: Entry, case: Case, fact: Facts | None = None) -> bool:
    """Whether an entry names a case, by static facts alone: ``fact``, if they are known."""
    want, mesh = entry.cases, case.question.mesh
    read = slug(case.id)
    # What costs least comes first: facts are worked out for few.
    if not (
        (not want.ids or any(fnmatchcase(read, pattern) for pattern in want.ids))
        and case.tags.issuperset(want.tags)
        and (not want.family or case.family in want.family)
        and _recipe_fits(entry, case)
        and want.axes in (None, len(mesh.axes))
        and want.devices in (None, mesh.size)
        and (want.dtype is None or any(one.dtype == want.dtype for one in case.question.inputs))
        and (not want.step or bool(steps(entry, case)))
    ):
        return False
    fact = fact or facts(case)
    return (
        want.ascending in (None, fact.ascending)
        and want.uneven in (None, fact.uneven)
        and (not want.indivisible or fact.indivisible in want.indivisible)
        and want.empty in (None, fact.empty)
        and want.newly_partial in (None, fact.newly_partial)
        and want.swaps_partial in (None, fact.swaps_partial)
        and (want.partial is None or want.partial in fact.pending)
    )


def _recipe_fits(entry: Entry, case: Case) -> bool:
    recipe, want = case.question.recipe, entry.cases.recipe
    if recipe is None:
        return not want
    return recipe.name in want or (not want and not entry.observed.startswith("plan: "))


def steps(entry: Entry, case: Case) -> tuple[str, ...]:
    """The steps of a case that an entry is about, as verdicts name them: y, or y/full.

    All inputs, results and their materialisations, if the entry names no step.
    """
    want, question = entry.cases.step, case.question
    made = [(one.name, one.name) for one in question.inputs]
    made += [(one.result, one.op) for one in question.steps]
    if question.recipe is not None:
        # What an answer shows of a training step, and its passes.
        made += [(name, name) for name in (*question.check, *PASSES)]
    fulls = [(f"{name}/full", "full") for name, _ in made]
    return tuple(name for name, kind in (*made, *fulls) if not want or {name, kind} & {*want})


def unused(entries: Sequence[Entry], cases: Sequence[Case]) -> list[Entry]:
    """The entries and rules that name no case at all."""
    return [entry for entry in entries if not any(names(entry, case) for case in cases)]
