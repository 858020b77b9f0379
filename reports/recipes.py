"""What must each parallel plan fire, and what do the frameworks fire? From contracts and records.

``python -m reports.recipes`` writes `docs/recipes.md`; a test checks that it is fresh.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from adapters.answer import Answer, Collective, format_end
from cases.catalogue.training import FAMILY
from cases.model import Mesh
from cases.notation import format_both_notations
from cases.recipes import MODELS, RECIPES, RecipeKind, sizes_of
from cases.recipes.contracts import CONTRACTS, ContractTerm, ExpectedCollectives
from cases.recipes.layouts import data_layout, parameter_layout
from cases.recipes.recipe_reader import PASSES
from reports.judged_catalogue import JudgedCase, cause_link, format_frameworks, judge_catalogue
from reports.tell import recorded_answers
from suites.contracts import as_collective, contract_terms, explain_pass
from suites.observation import Fired, total_bytes
from suites.verdict import Verdict
from suites.wording import format_factor

PAGE = Path(__file__).resolve().parent.parent / "docs" / "recipes.md"

# The columns: one program of a whole step each.
_SUBJECTS = ("torch", "jax/jit")


def page() -> str:
    """The page, in Markdown."""
    own = [one for one in judge_catalogue() if one.case.question.recipe is not None]
    lines = [
        "# Recipes and their contracts",
        "",
        "Written by `python -m reports.recipes` from `cases/recipes/` and the records of"
        f" {format_frameworks()}; do not edit.",
        "",
        "A recipe is a small model with a parallel plan, trained for one step: forward, loss,"
        " backward, plain gradient descent. Its contract is what the parallel plan must fire, as"
        " formulas from the paper that it comes from: `itemsize` is the bytes of a number, `wide`"
        " at least the four of float32, in which losses are taken, `weights` the elements of all"
        " sharded parameters on a device once they are gathered; other names are sizes of the"
        " model and of mesh axes. Bytes are of the local operands. A term in brackets is *spare*:"
        " a framework that does without it is as right.",
        "",
        "A cell says how often each collective was fired, and how that follows from the contract:"
        " nothing is said where it is as the contract has it, else a lowering rule is named, or it"
        " is another redistribution plan. *Costly* is one that moves more bytes than the contract,"
        " *free* one that does not, *wrong* one that lacks what the parallel plan needs. Last come"
        " the bytes that the busiest device receives, beside those of the contract and beside the"
        " least, which is the contract without what is spare. Dry runs differ in their peaks by how"
        " attention is computed: JAX's is written out, scores and all; torch's is one kernel, and"
        " its inside is not seen.",
        "",
        _summary(own),
        "",
    ]
    for row in RECIPES.values():
        lines += _recipe(row, [one for one in own if _uses_recipe(one, row)])
    return "\n".join(lines)


def _uses_recipe(one: JudgedCase, row: RecipeKind) -> bool:
    recipe = one.case.question.recipe
    return recipe is not None and recipe.name == row.name


def _summary(own: Sequence[JudgedCase]) -> str:
    lines = [
        "| | steps | right | passes as the contract has them, dry runs too | another plan |",
        "|---|---|---|---|---|",
    ]
    for subject in _SUBJECTS:
        real = [one for one in own if one.case.question.mode == "real"]
        right = sum(one.outcomes[subject] == "sound" for one in real)
        passes = [v for one in own for v in _passes(one, subject).values()]
        other = sum(v.severity is not None for v in passes)
        lines.append(
            f"| {subject} | {len(real)} | {right} | {len(passes) - other} of {len(passes)} passes"
            f" | {other} |"
        )
    return "\n".join(lines)


def _passes(one: JudgedCase, subject: str) -> dict[str | None, Verdict]:
    """By pass, what was said of its collectives."""
    return {
        v.step: v
        for v in one.of(subject)
        if v.aspect == "collectives" and v.step in PASSES and v.verdict != "not comparable"
    }


def _recipe(row: RecipeKind, own: Sequence[JudgedCase]) -> list[str]:
    contract, model = CONTRACTS[row.name], MODELS[row.model]
    lines = [
        f"## {row.name}",
        "",
        f"{row.how[0].upper()}{row.how[1:]}. Source: {contract.source}",
        "",
    ]
    lines += ["| pass | collectives | over | bytes | what |", "|---|---|---|---|---|"]
    lines += [_term_row(term) for term in contract.terms]
    first = own[0].case.question
    lines += ["", "| tensor | shape | layout |", "|---|---|---|"]
    for tensor in (*model.parameters, model.out):
        layout = data_layout(row, tensor)
        if tensor is not model.out:
            layout = parameter_layout(row, tensor, sizes_of(first), first.mesh)
        lines.append(
            f"| `{tensor.name}` | {' × '.join(tensor.shape)} | {format_both_notations(layout, first.mesh)} |"
        )
    lines += ["", f"| mesh | pass | contract | {' | '.join(_SUBJECTS)} |", "|---|---|---|---|---|"]
    for one in own:
        lines += _mesh_rows(one)
    return [*lines, ""]


def _term_row(term: ContractTerm) -> str:
    count = "" if term.count == "1" else f"{term.count} × "
    cells = (
        term.pass_, f"{count}{term.kind}", ", ".join(term.axes), f"`{term.bytes}`", term.what
    )  # fmt: skip
    return "| " + " | ".join(f"({cell})" if term.spare else cell for cell in cells) + " |"


def _mesh_rows(one: JudgedCase) -> list[str]:
    answers = recorded_answers(one.case)
    name = ", ".join(f"{axis}={size}" for axis, size in one.case.question.mesh.axes)
    if one.case.family != FAMILY:
        name += f" ({one.case.id})"
    lines = []
    for pass_ in PASSES:
        wanted = [due for due in contract_terms(one.case) if due.term.pass_ == pass_]
        cells = []
        for subject in _SUBJECTS:
            answer = answers[subject]
            cells.append(_cell(one, answer, pass_))
        if wanted or any(cell != "none" for cell in cells):
            due = ", ".join(map(_format_due, wanted))
            lines.append(f"| {name} | {pass_} | {due or 'none'} | {' | '.join(cells)} |")
            name = ""
    peaks = [answers[subject].peak for subject in _SUBJECTS]
    if any(peaks):
        told = (f"{peak / 2**30:.2f} GiB" if peak else "" for peak in peaks)
        lines.append(f"| | peak of a device | | {' | '.join(told)} |")
    return lines


def _format_due(one: ExpectedCollectives) -> str:
    axes = ",".join(one.term.axes)
    said = f"{_format_count(one.count)}{one.term.kind}({axes}) of {one.bytes:,} B"
    return f"({said})" if one.term.spare else said


def _format_count(count: int) -> str:
    return "" if count == 1 else f"{count} "


def _cell(one: JudgedCase, answer: Answer, pass_: str) -> str:
    if answer.program is None:
        return format_end(answer.end)
    mesh = one.case.question.mesh
    fired = tuple(c for c in answer.program if c.pass_ == pass_)
    wanted = [due for due in contract_terms(one.case) if due.term.pass_ == pass_]
    if not fired and not wanted:
        return "none"
    said = _format_collectives(mesh, fired)
    verdict = _passes(one, answer.subject).get(pass_)
    if verdict is not None and verdict.severity is not None:
        cause = f" ({cause_link(verdict.ledger)})" if verdict.ledger else ""
        said += f": **another plan, {verdict.severity}**{cause}"
    else:
        rules = " and ".join(rule.name for rule in explain_pass(mesh, fired, wanted).rules)
        said += f": {rules}" if rules else ""
    return said + _format_bytes(mesh, fired, wanted)


def _format_bytes(mesh: Mesh, fired: Fired, wanted: Sequence[ExpectedCollectives]) -> str:
    """The bytes of a pass beside those of its contract and the least; "" if all are equal."""
    contract = tuple(as_collective(mesh, due) for due in wanted)
    least = tuple(as_collective(mesh, due) for due in wanted if not due.term.spare)
    if total_bytes(fired) == total_bytes(contract) == total_bytes(least):
        return ""
    if total_bytes(contract) == total_bytes(least):
        return f"; {format_factor(fired, contract)} the contract"
    return (
        f"; {format_factor(fired, contract)} the contract, {format_factor(fired, least)} the least"
    )


def _format_collectives(mesh: Mesh, fired: Iterable[Collective]) -> str:
    counted: dict[str, int] = {}
    for one in fired:
        axes = ",".join(axis for axis in one.axes if mesh[axis] > 1) or ",".join(one.axes) or "?"
        counted[f"{one.kind}({axes})"] = counted.get(f"{one.kind}({axes})", 0) + 1
    return ", ".join(f"{_format_count(n)}{what}" for what, n in counted.items()) or "none"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")
