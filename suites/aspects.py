"""Is an answer sound, right, and the same as another's? One pure function per aspect.

Each takes what was asked and what was answered and gives findings; none knows the ledger,
a record or how an adapter works. Collectives have a module of their own.
"""

from __future__ import annotations

from typing import Any

import msgspec
from numpy.typing import NDArray

from adapters.answer import Answer, Crashed, Done, End, Hung, Observed, Refused, Unsupported, ending
from adapters.reference.meshes import observe as observe_meshes
from adapters.reference.values import join
from cases.arrays import Array, pack, unpack
from cases.grids import homes
from cases.layout import coordinate, coordinates, local_shape, offset, ranges, same, used
from cases.model import Case, Foreign, Layout, Mesh, Tolerance
from cases.notation import both
from suites.truth import Truth
from suites.values import EXACT, difference, part, show
from suites.verdict import Aspect, Finding, agree, not_comparable


def twice(allowed: Tolerance) -> Tolerance:
    """How far two results may differ from one another that may each be so far from the truth."""
    return msgspec.structs.replace(allowed, rtol=2 * allowed.rtol, atol=2 * allowed.atol)


def mesh_of(case: Case, name: str) -> Mesh:
    """The mesh that an input or result sits on, whose positions its shards are listed by."""
    return homes(case.question).get(name, case.question.mesh)


def place(mesh: Mesh, position: int) -> str:
    """A mesh position in words: device and coordinate."""
    where = ", ".join(f"{axis}={index}" for axis, index in coordinate(mesh, position).items())
    return f"device {mesh.devices[position]} ({where})"


def said(layout: Layout | Foreign | None, mesh: Mesh) -> str:
    """A reported layout in both notations."""
    if layout is None:
        return "no layout"
    return layout.text if isinstance(layout, Foreign) else both(layout, mesh)


def observed_end(end: End) -> str:
    """How an answer ended, in the ledger's words; "" if it ran to its end or has no such thing."""
    match end:
        case Refused(error):
            return f"refused: {error}"
        case Crashed():
            return "crashed"
        case Hung():
            return "hung"
        case Done() | Unsupported():
            return ""


def value_aspect(case: Case, step: str | None) -> Aspect:
    """The aspect that judges a step: "gradients" or "meshes" where it makes one, else "global"."""
    plain = (step or "").removesuffix("/full")
    if plain in mesh_names(case):
        return "meshes"
    grads = {one.result for one in case.question.steps if one.op == "grad"}
    return "gradients" if plain in grads else "global"


def mesh_names(case: Case) -> frozenset[str]:
    """What the mesh steps make, which is judged in an aspect of its own."""
    return frozenset(step.result for step in case.question.mesh_steps)


def of_tensors(case: Case, answer: Answer) -> Answer:
    """An answer without what it says of derived meshes."""
    names = mesh_names(case)
    if not names:
        return answer
    kept = tuple(seen for seen in answer.seen if seen.name.partition("/")[0] not in names)
    return msgspec.structs.replace(answer, seen=kept)


def missing(
    case: Case, answer: Answer, aspect: Aspect, against: str = "reference"
) -> list[Finding]:
    """Findings for the checked names that an answer did not reach.

    A refusal, a crash or a hang is a divergence of the global result at the step at fault; in
    every other aspect, and at later steps, there is nothing to compare.
    """
    if isinstance(answer.end, Done):
        return []
    seen = {observed.name for observed in answer.seen} | mesh_names(case)
    absent = [name for name in case.question.check if name not in seen]
    if not absent and not mesh_names(case):
        absent = [case.question.check[-1]]
    why = ending(answer.end)
    findings = []
    kind = observed_end(answer.end)
    if aspect == "global" and kind:
        step = getattr(answer.end, "step", "") or (absent or case.question.check)[0]
        if step == case.expectation.refused and isinstance(answer.end, Refused):
            return [agree(step, "meshes", why=why)]
        asks = value_aspect(case, step)
        findings.append(Finding(step, asks, against, "divergence", kind, "an answer", why, ""))
        absent = [name for name in absent if name != step]
    return findings + [not_comparable(name, aspect, why, against, why) for name in absent]


def soundness(case: Case, answer: Answer, right: Truth) -> list[Finding]:
    """Does an answer agree with itself?

    Every rank reports the same; shards are the slices of the answer's own global value that its
    own layout implies, pending reductions lead to it, offsets are those of the slices.
    """
    noticed = [("counters disagree", "counters that agree", one) for one in answer.complaints] + [
        ("ranks differ", "one end on all ranks", one) for one in answer.apart
    ]
    findings = [Finding(None, "soundness", "reference", "divergence", *texts) for texts in noticed]
    for seen in answer.seen:
        mesh = mesh_of(case, seen.name)
        # An element that may be anything is to be one thing in one answer.
        allowed = msgspec.structs.replace(right.allowed.get(seen.name, EXACT), free=None)
        found = _unsound(mesh, seen, twice(allowed))
        if found is not None:
            findings.append(found)
        elif not isinstance(seen.layout, Layout):
            why = "no layout reported" if seen.layout is None else "a layout of its own kind"
            findings.append(
                not_comparable(seen.name, "soundness", why, got=said(seen.layout, mesh))
            )
        elif seen.shards is None or not seen.full:
            findings.append(not_comparable(seen.name, "soundness", "no shards or no global value"))
        else:
            findings.append(agree(seen.name, "soundness"))
    return findings + missing(case, answer, "soundness")


def _unsound(mesh: Mesh, seen: Observed, allowed: Tolerance) -> Finding | None:
    def wrong(observed: str, wanted: str, got: str, where: str = "") -> Finding:
        return Finding(
            seen.name, "soundness", "reference", "divergence", observed, wanted, got,
            "the answer contradicts itself", where,
        )  # fmt: skip

    if seen.disagreements:
        return wrong("ranks differ", "one report from all ranks", "; ".join(seen.disagreements))
    apart = [p for p, full in enumerate(seen.full) if full != seen.full[0]]
    if apart:
        p = apart[0]
        return wrong(
            "ranks differ", f"{show(seen.full[0])} as on {place(mesh, 0)}",
            f"{show(seen.full[p])} on {place(mesh, p)}", place(mesh, p),
        )  # fmt: skip
    layout = seen.layout
    if not isinstance(layout, Layout) or seen.shards is None or not seen.full:
        return None
    if layout.ndim != len(seen.shape):
        return wrong("wrong layout", f"a layout of {len(seen.shape)} dims", said(layout, mesh))
    held = ranges(mesh, layout, seen.shape)
    present = [(p, shard) for p, shard in enumerate(seen.shards) if shard is not None]
    for p, shard in present:
        if shard.shape != local_shape(held[p]):
            wanted = f"local shape {list(local_shape(held[p]))} under {said(layout, mesh)}"
            return wrong("wrong shard", wanted, str(list(shard.shape)), place(mesh, p))
    for p, where in enumerate(seen.offsets or ()):
        # Where a shard of nothing begins is nobody's business.
        if where not in (None, offset(held[p])) and 0 not in local_shape(held[p]):
            wanted, got = str(list(offset(held[p]))), str(list(where or ()))
            return wrong("wrong offset", wanted, got, place(mesh, p))
    full = unpack(seen.full[0])
    if full.shape != seen.shape:
        return wrong("wrong value", f"shape {list(seen.shape)}", f"{list(full.shape)}")
    if layout.partial:
        if len(present) < mesh.size:
            return None
        return _unpaid(mesh, layout, seen, full, allowed, wrong)
    for p, shard in present:
        own = pack(full[tuple(slice(*span) for span in held[p])])
        if (off := difference(own, shard, EXACT)) is not None:
            return wrong(
                "wrong shard", f"{show(own)}, the slice of its own global value", show(shard),
                f"{place(mesh, p)}: {off}",
            )  # fmt: skip
    return None


def _unpaid(
    mesh: Mesh,
    layout: Layout,
    seen: Observed,
    full: NDArray[Any],
    allowed: Tolerance,
    wrong: Any,
) -> Finding | None:
    shards = [unpack(shard) for shard in seen.shards or () if shard is not None]
    if any(op == "avg" for _, op in layout.partial) and full.dtype.kind in "biu":
        return None
    named = set(used(layout))
    for p, where in enumerate(coordinates(mesh)):
        # One position for each set of replicas: those that are first along every axis named.
        if any(index and axis in named for axis, index in where.items()):
            continue
        total = pack(join(mesh, layout, shards, seen.shape, p))
        if (off := difference(total, pack(full), allowed)) is not None:
            found: Finding = wrong(
                "wrong shard", f"{show(total)}, what addends beside {place(mesh, p)} reduce to",
                show(pack(full)), off,
            )  # fmt: skip
            return found
    return None


def global_(case: Case, answer: Answer, right: Truth) -> list[Finding]:
    """Is the global result right? Held against the case's own right value or the reference's."""
    findings = missing(case, answer, "global")
    for seen in answer.seen:
        wanted, aspect = right.values.get(seen.name), value_aspect(case, seen.name)
        if wanted is None or not seen.full or seen.name in right.own:
            why = "no right value" if wanted is None else "no global value"
            if seen.name in right.own:
                why = "random numbers, each framework's own"
            findings.append(not_comparable(seen.name, aspect, why))
            continue
        for position, got in enumerate(seen.full):
            off = difference(wanted, got, right.allowed.get(seen.name, EXACT))
            if off is not None:
                rank = (
                    place(mesh_of(case, seen.name), position)
                    if len(seen.full) > 1
                    else "every rank"
                )
                findings.append(
                    Finding(seen.name, aspect, "reference", "divergence", "wrong value",
                            show(wanted), show(got), right.doubt(seen.name), f"on {rank}: {off}")
                )  # fmt: skip
                break
        else:
            findings.append(agree(seen.name, aspect))
    return findings


def stated(case: Case, answer: Answer) -> list[Finding]:
    """Shards, offsets and layouts that the question asks for or the case states."""
    findings = []
    expected = case.expectation
    asked: dict[str, Layout] = {given.name: given.layout for given in case.question.inputs}
    asked |= {step.result: step.to for step in case.question.steps if step.to is not None}
    asked |= expected.layouts
    for seen in answer.seen:
        mesh = mesh_of(case, seen.name)
        if seen.name in asked and seen.layout is not None:
            wanted = asked[seen.name]
            fits = isinstance(seen.layout, Layout) and seen.layout.ndim == wanted.ndim
            if fits and same(mesh, wanted, seen.layout, seen.shape):  # type: ignore[arg-type]
                findings.append(agree(seen.name, "layout"))
            else:
                findings.append(
                    Finding(seen.name, "layout", "reference", "divergence", "layout: not as asked",
                            said(wanted, mesh), said(seen.layout, mesh))
                )  # fmt: skip
        for kind, wanted_all, got_all in (
            ("wrong shard", expected.shards.get(seen.name), seen.shards),
            ("wrong offset", expected.offsets.get(seen.name), seen.offsets),
        ):
            if wanted_all is not None:
                findings.append(_stated_shards(mesh, seen.name, kind, wanted_all, got_all))
    return findings


def meshes(case: Case, answer: Answer) -> list[Finding]:
    """Does every device see the derived meshes as the reference does, or as the case says?

    Its grid of devices, its coordinate, its group along each axis; and a mesh step that is
    wrong has made none.
    """
    findings, mesh = [], case.question.mesh
    names = mesh_names(case) & {*case.question.check}
    for right in observe_meshes(case.question) if names else ():
        base = right.name.partition("/")[0]
        if base not in names:
            continue
        seen = _other(answer, right.name)
        if seen is None or seen.shards is None:
            if getattr(answer.end, "step", None) != right.name:
                findings.append(not_comparable(right.name, "meshes", ending(answer.end)))
            continue
        assert right.shards is not None
        wanted, doubt = case.expectation.meshes.get(right.name, right.shards), ""
        if wanted != right.shards and (ours := right.shards[0]) is not None:
            doubt = f"wanted is the case's own word; the reference has {show(ours)}"
        found = _stated_shards(mesh, right.name, "wrong value", wanted, seen.shards)
        if found.verdict == "agree" and right.offsets is not None:
            found = _stated_shards(mesh, right.name, "wrong offset", right.offsets, seen.offsets)
        findings.append(msgspec.structs.replace(found, aspect="meshes", why=doubt))
    made = _other(answer, case.expectation.refused)
    if made is not None:
        got = show(made.shards[0]) if made.shards and made.shards[0] is not None else "a mesh"
        findings.append(
            Finding(made.name, "meshes", "reference", "divergence", "wrong value", "a refusal", got,
                    "the step is wrong, and makes no mesh")
        )  # fmt: skip
    return findings


def _stated_shards(
    mesh: Mesh, name: str, kind: str, wanted: tuple[Any, ...], got: tuple[Any, ...] | None
) -> Finding:
    if got is None or all(one is None for one in got):
        return not_comparable(name, "shards", "the route shows none")
    for p, (one, other) in enumerate(zip(wanted, got, strict=True)):
        if other is None or one == other:
            continue
        if isinstance(one, Array):
            if (off := difference(one, other, EXACT)) is None:
                continue
            texts = show(one), show(other), f"{place(mesh, p)}: {off}"
        else:
            texts = str(list(one)), str(list(other)), place(mesh, p)
        return Finding(name, "shards", "reference", "divergence", kind, *texts[:2], "", texts[2])
    return agree(name, "shards")


def doubtful(case: Case, answer: Answer, right: Truth) -> frozenset[str | None]:
    """The inputs and results of an answer that are wrong by themselves: nothing to hold against."""
    answer = of_tensors(case, answer)
    found = soundness(case, answer, right) + global_(case, answer, right)
    return frozenset(finding.step for finding in found if finding.verdict == "divergence")


def shards(
    case: Case,
    ours: Answer,
    theirs: Answer,
    right: Truth,
    doubt: frozenset[str | None] = frozenset(),
) -> list[Finding]:
    """Do two subjects hold the same shards, device by device, where their layouts are equal?

    ``theirs`` is the subject held against; ``doubt`` names where it is wrong itself.
    """
    findings = missing(case, ours, "shards", theirs.subject)
    for seen in ours.seen:
        other = _other(theirs, seen.name)
        mesh = mesh_of(case, seen.name)
        if other is None:
            findings.append(not_comparable(seen.name, "shards", ending(theirs.end), theirs.subject))
        elif seen.name in right.own:
            why = "random numbers, each framework's own"
            findings.append(not_comparable(seen.name, "shards", why, theirs.subject))
        elif seen.name in right.apart:
            findings.append(
                not_comparable(seen.name, "shards", right.apart[seen.name], theirs.subject)
            )
        elif seen.name in doubt:
            why = f"{theirs.subject} is itself wrong here"
            findings.append(not_comparable(seen.name, "shards", why, theirs.subject))
        elif seen.shards is None or other.shards is None:
            findings.append(not_comparable(seen.name, "shards", "no shards shown", theirs.subject))
        elif not _same_layout(mesh, seen, other):
            why = f"layouts differ: {said(seen.layout, mesh)} and {said(other.layout, mesh)}"
            findings.append(not_comparable(seen.name, "shards", why, theirs.subject))
        elif isinstance(seen.layout, Layout) and seen.layout.partial:
            why = "addends of a pending reduction may be dealt out differently"
            findings.append(not_comparable(seen.name, "shards", why, theirs.subject))
        else:
            allowed = twice(right.allowed.get(seen.name, EXACT))
            findings.append(_shards(mesh, seen, other, theirs.subject, allowed))
    return findings


def _shards(
    mesh: Mesh, seen: Observed, other: Observed, against: str, allowed: Tolerance
) -> Finding:
    # Two right results of one op may round differently; soundness ties each to its own.
    assert isinstance(seen.layout, Layout)
    held = ranges(mesh, seen.layout, seen.shape)
    for p, (got, wanted) in enumerate(zip(seen.shards or (), other.shards or (), strict=True)):
        if got is None or wanted is None:
            continue
        if (off := difference(wanted, got, part(allowed, held[p]))) is not None:
            return Finding(
                seen.name, "shards", against, "divergence", "wrong shard", show(wanted), show(got),
                "", f"{place(mesh, p)}: {off}",
            )  # fmt: skip
    return agree(seen.name, "shards", against)


def _other(answer: Answer, name: str) -> Observed | None:
    return next((seen for seen in answer.seen if seen.name == name), None)


def _same_layout(mesh: Mesh, one: Observed, other: Observed) -> bool:
    return (
        isinstance(one.layout, Layout)
        and isinstance(other.layout, Layout)
        and one.shape == other.shape
        and one.layout.ndim == other.layout.ndim
        and same(mesh, one.layout, other.layout, one.shape)
    )


def layout(case: Case, ours: Answer, theirs: Answer) -> list[Finding]:
    """Do two subjects report the same layout? If not, what kind of difference is it?"""
    findings = missing(case, ours, "layout", theirs.subject)
    for seen in ours.seen:
        other = _other(theirs, seen.name)
        mesh = mesh_of(case, seen.name)
        if other is None:
            findings.append(not_comparable(seen.name, "layout", ending(theirs.end), theirs.subject))
        elif seen.layout is None or other.layout is None:
            findings.append(not_comparable(seen.name, "layout", "none reported", theirs.subject))
        elif _same_layout(mesh, seen, other):
            findings.append(agree(seen.name, "layout", theirs.subject))
        else:
            kind = _layout_kind(mesh, seen.layout, other.layout)
            findings.append(
                Finding(seen.name, "layout", theirs.subject, "divergence", f"layout: {kind}",
                        said(other.layout, mesh), said(seen.layout, mesh))
            )  # fmt: skip
    return findings


def _layout_kind(mesh: Mesh, ours: Layout | Foreign, theirs: Layout | Foreign) -> str:
    """A name for how our layout differs from theirs."""
    if isinstance(ours, Foreign) or isinstance(theirs, Foreign):
        return "of another kind"
    if theirs.partial and not ours.partial:
        return "reduced at once"
    if ours.partial and not theirs.partial:
        return "reduction deferred"
    if ours.partial != theirs.partial:
        return "owed over other axes"
    mine, other = (
        {axis for axes in one.dims for axis in axes if mesh[axis] > 1} for one in (ours, theirs)
    )
    if mine < other:
        return "split over fewer axes"
    if mine > other:
        return "split over more axes"
    return "split differently"
