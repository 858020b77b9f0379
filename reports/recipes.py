"""What must each parallel plan fire, and what do the frameworks fire? From contracts and records.

``python -m reports.recipes`` writes `docs/recipes.md`; a test checks that it is fresh.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from adapters.answer import Collective
from cases.catalogue.training import FAMILY
from cases.model import Case, Mesh
from cases.notation import both
from cases.recipes import MODELS, RECIPES, Row, sizes_of
from cases.recipes.contracts import CONTRACTS, Due, Term
from cases.recipes.form import PASSES
from cases.recipes.layouts import data, parameter
from reports.judged import Judged, frameworks, judged, outcome
from reports.tell import recorded
from suites.contracts import dues, worth
from suites.failure import ended
from suites.verdict import Verdict

PAGE = Path(__file__).resolve().parent.parent / "docs" / "recipes.md"

# The columns: one program of a whole step each.
_SUBJECTS = ("torch", "jax/jit")


def page() -> str:
    """The page, in Markdown."""
    own = [one for one in judged() if one.case.question.recipe is not None]
    lines = [
        "# Recipes and their contracts",
        "",
        "Written by `python -m reports.recipes` from `cases/recipes/` and the records of"
        f" {frameworks()}; do not edit.",
        "",
        "A recipe is a small model with a parallel plan, trained for one step: forward, loss,"
        " backward, plain gradient descent. Its contract is what the plan must fire, as formulas"
        " from the paper it comes from: `itemsize` is the bytes of a number, `wide` at least the"
        " four of float32, in which losses are taken, `weights` the elements of all sharded"
        " parameters on a device once gathered; other names are sizes of the model and of mesh"
        " axes. Bytes are of the local operands. A term in brackets is *spare*: who"
        " does without is as right.",
        "",
        "A cell says how often each collective was fired, how that follows from the contract"
        " (nothing said: as it stands; a lowering rule by its name; or another plan), and the bytes"
        " that the busiest device receives: over the contract's, and over the least, which is the"
        " contract's without what is spare. Peaks of planned steps differ by what attention is made"
        " of: JAX's is written out, scores and all; torch's is one kernel, whose inside is not"
        " seen.",
        "",
        _summary(own),
        "",
    ]
    for row in RECIPES.values():
        lines += _recipe(row, [one for one in own if _is(one, row)])
    return "\n".join(lines)


def _is(one: Judged, row: Row) -> bool:
    recipe = one.case.question.recipe
    return recipe is not None and recipe.name == row.name


def _summary(own: Sequence[Judged]) -> str:
    lines = [
        "| | steps | right | as the contract has it, planned steps too | another plan |",
        "|---|---|---|---|---|",
    ]
    for subject in _SUBJECTS:
        real = [one for one in own if one.case.question.mode == "real"]
        right = sum(outcome(one.of(subject)) == "sound" for one in real)
        passes = [v for one in own for v in _passes(one, subject)]
        other = sum(v.verdict in ("known", "divergence") for v in passes)
        lines.append(
            f"| {subject} | {len(real)} | {right} | {len(passes) - other} of {len(passes)} passes"
            f" | {other} |"
        )
    return "\n".join(lines)


def _passes(one: Judged, subject: str) -> list[Verdict]:
    found: dict[str | None, Verdict] = {}
    for v in one.of(subject):
        # The first is held against the contract; a case's own counts come after.
        if v.aspect == "collectives" and v.step in PASSES and v.verdict != "not comparable":
            found.setdefault(v.step, v)
    return list(found.values())


def _recipe(row: Row, own: Sequence[Judged]) -> list[str]:
    contract, model = CONTRACTS[row.name], MODELS[row.model]
    lines = [
        f"## {row.name}",
        "",
        f"{row.how[0].upper()}{row.how[1:]}. Source: {contract.source}",
        "",
    ]
    lines += ["| pass | collectives | over | bytes | what |", "|---|---|---|---|---|"]
    lines += [_term(term) for term in contract.terms]
    first = own[0].case.question
    lines += ["", "| tensor | shape | layout |", "|---|---|---|"]
    for tensor in (*model.parameters, model.out):
        layout = data(row, tensor)
        if tensor is not model.out:
            layout = parameter(row, tensor, sizes_of(first), first.mesh)
        lines.append(
            f"| `{tensor.name}` | {' × '.join(tensor.shape)} | {both(layout, first.mesh)} |"
        )
    lines += ["", f"| mesh | pass | contract | {' | '.join(_SUBJECTS)} |", "|---|---|---|---|---|"]
    for one in own:
        lines += _mesh(one)
    return [*lines, ""]


def _term(term: Term) -> str:
    count = "" if term.count == "1" else f"{term.count} × "
    cells = (
        term.pass_, f"{count}{term.kind}", ", ".join(term.axes), f"`{term.bytes}`", term.what
    )  # fmt: skip
    return "| " + " | ".join(f"({cell})" if term.spare else cell for cell in cells) + " |"


def _mesh(one: Judged) -> list[str]:
    answers = recorded(one.case)
    name = ", ".join(f"{axis}={size}" for axis, size in one.case.question.mesh.axes)
    if one.case.family != FAMILY:
        name += f" ({one.case.id})"
    lines = []
    for pass_ in PASSES:
        wanted = [due for due in dues(one.case) if due.term.pass_ == pass_]
        cells = []
        for subject in _SUBJECTS:
            answer = answers[subject]
            if answer.program is None:
                cells.append(ended({subject: answer}).partition(": ")[2])
                continue
            fired = [c for c in answer.program if c.pass_ == pass_]
            cells.append(_cell(one, subject, pass_, fired))
        if wanted or any(cell != "none" for cell in cells):
            due = ", ".join(map(_due, wanted))
            lines.append(f"| {name} | {pass_} | {due or 'none'} | {' | '.join(cells)} |")
            name = ""
    peaks = [answers[subject].peak for subject in _SUBJECTS]
    if any(peaks):
        told = (f"{peak / 2**30:.2f} GiB" if peak else "" for peak in peaks)
        lines.append(f"| | peak of a device | | {' | '.join(told)} |")
    return lines


def _due(one: Due) -> str:
    axes = ",".join(one.term.axes)
    said = f"{_times(one.count)}{one.term.kind}({axes}) of {one.bytes:,} B"
    return f"({said})" if one.term.spare else said


def _times(count: int) -> str:
    return "" if count == 1 else f"{count} "


def _cell(one: Judged, subject: str, pass_: str, fired: list[Collective]) -> str:
    wanted = [due for due in dues(one.case) if due.term.pass_ == pass_]
    if not fired and not wanted:
        return "none"
    (verdict, *_) = [v for v in _passes(one, subject) if v.step == pass_]
    over, least = worth(one.case.question.mesh, fired, wanted)
    said = _grouped(one.case.question.mesh, fired)
    price = "" if over == least == "1x" else f"; {over} the contract, {least} the least"
    if verdict.verdict == "known":
        return f"{said}: **another plan** ([{verdict.ledger}](divergences.md)){price}"
    rules = _rules(one.case, subject, pass_)
    return said + (f": {rules}" if rules else "") + price


def _grouped(mesh: Mesh, fired: Iterable[Collective]) -> str:
    counted: dict[str, int] = {}
    for one in fired:
        axes = ",".join(axis for axis in one.axes if mesh[axis] > 1) or ",".join(one.axes) or "?"
        counted[f"{one.kind}({axes})"] = counted.get(f"{one.kind}({axes})", 0) + 1
    return ", ".join(f"{_times(n)}{what}" for what, n in counted.items()) or "none"


def _rules(case: Case, subject: str, pass_: str) -> str:
    from suites.contracts import explain

    answer = recorded(case)[subject]
    fired = [c for c in answer.program or () if c.pass_ == pass_]
    wanted = [due for due in dues(case) if due.term.pass_ == pass_]
    return " and ".join(explain(case.question.mesh, fired, wanted).rules)


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")
