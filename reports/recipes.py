"""What must each parallel plan fire, and what do the frameworks fire? By contracts and records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from adapters.answer import Answer, Collective, format_end
from adapters.registry import lowerings_of
from cases.catalogue.training import FAMILY
from cases.model import PASSES, Mesh
from cases.notation import format_both_notations
from cases.recipes import MODELS, RECIPES, RecipeKind, sizes_of
from cases.recipes.contracts import CONTRACTS, ContractTerm, ExpectedCollectives
from cases.recipes.layouts import data_layout, parameter_layout
from reports.formatting import format_axes
from reports.judged_catalogue import JudgedCase, cause_link, format_frameworks, judge_catalogue
from reports.tell import recorded_answers
from reports.templates import DOCS, code, render
from suites.contracts import as_collective, contract_terms, explain_pass
from suites.observation import Fired, total_bytes
from suites.verdict import Verdict
from suites.wording import format_factor

PAGE = DOCS / "recipes.md"

# The columns: one program of a whole step each.
_SUBJECTS = ("torch", "jax/jit")


def page() -> str:
    """The page, in Markdown."""
    own = [one for one in judge_catalogue() if one.case.question.recipe is not None]
    recipes = [_recipe(row, [one for one in own if _uses_recipe(one, row)])
               for row in RECIPES.values()]  # fmt: skip
    return render(
        PAGE.name,
        frameworks=format_frameworks(),
        subjects=[*_SUBJECTS],
        summary=[_summary_row(own, subject) for subject in _SUBJECTS],
        recipes=recipes,
    )


def _uses_recipe(one: JudgedCase, row: RecipeKind) -> bool:
    recipe = one.case.question.recipe
    return recipe is not None and recipe.name == row.name


def _summary_row(own: Sequence[JudgedCase], subject: str) -> tuple[object, ...]:
    real = [one for one in own if one.case.question.mode == "real"]
    right = sum(one.outcomes[subject] == "sound" for one in real)
    passes = [v for one in own for v in _passes(one, subject).values()]
    other = sum(v.severity is not None for v in passes)
    equal = f"{len(passes) - other} of {len(passes)} passes"
    return subject, len(real), right, equal, other


def _passes(one: JudgedCase, subject: str) -> dict[str | None, Verdict]:
    """The verdict about the collectives of each pass."""
    return {
        v.step: v
        for v in one.of(subject)
        if v.aspect == "collectives" and v.step in PASSES and v.verdict != "not comparable"
    }


def _recipe(row: RecipeKind, own: Sequence[JudgedCase]) -> dict[str, object]:
    contract, model = CONTRACTS[row.name], MODELS[row.model]
    first = own[0].case.question
    tensors = []
    for tensor in (*model.parameters, model.out):
        layout = data_layout(row, tensor)
        if tensor is not model.out:
            layout = parameter_layout(row, tensor, sizes_of(first), first.mesh)
        where = format_both_notations(layout, first.mesh)
        tensors.append([code(tensor.name), " × ".join(tensor.shape), where])
    return {
        "name": row.name,
        "how": f"{row.how[0].upper()}{row.how[1:]}",
        "source": contract.source,
        "terms": [_term_row(term) for term in contract.terms],
        "tensors": tensors,
        "meshes": [line for one in own for line in _mesh_rows(one)],
    }


def _term_row(term: ContractTerm) -> list[str]:
    count = "" if term.count == "1" else f"{term.count} × "
    cells = (
        term.pass_, f"{count}{term.kind}", ", ".join(term.axes), code(term.bytes), term.what
    )  # fmt: skip
    return [f"({cell})" if term.spare else cell for cell in cells]


def _mesh_rows(one: JudgedCase) -> Iterator[list[str]]:
    """What a case must fire and what each subject fired, pass by pass."""
    answers = recorded_answers(one.case)
    name = format_axes(one.case.question.mesh)
    if one.case.family != FAMILY:
        name += f" ({one.case.id})"
    for pass_ in PASSES:
        wanted = [due for due in contract_terms(one.case) if due.term.pass_ == pass_]
        cells = [_cell(one, answers[subject], wanted, pass_) for subject in _SUBJECTS]
        if wanted or any(cell != "none" for cell in cells):
            yield [name, pass_, ", ".join(map(_format_due, wanted)) or "none", *cells]
            name = ""
    peaks = [answers[subject].peak for subject in _SUBJECTS]
    if any(peaks):
        texts = (f"{peak / 2**30:.2f} GiB" if peak else "" for peak in peaks)
        yield ["", "peak of a device", "", *texts]


def _format_due(one: ExpectedCollectives) -> str:
    axes = ",".join(one.term.axes)
    text = f"{_format_count(one.count)}{one.term.kind}({axes}) of {one.bytes:,} B"
    return f"({text})" if one.term.spare else text


def _format_count(count: int) -> str:
    return "" if count == 1 else f"{count} "


def _cell(
    one: JudgedCase, answer: Answer, wanted: Sequence[ExpectedCollectives], pass_: str
) -> str:
    if answer.program is None:
        return format_end(answer.end)
    mesh = one.case.question.mesh
    fired = tuple(c for c in answer.program if c.pass_ == pass_)
    if not fired and not wanted:
        return "none"
    text = _format_collectives(mesh, fired)
    verdict = _passes(one, answer.subject).get(pass_)
    if verdict is not None and verdict.severity is not None:
        cause = f" ({cause_link(verdict.ledger)})" if verdict.ledger else ""
        text += f": **another plan, {verdict.severity}**{cause}"
    else:
        rules = explain_pass(mesh, lowerings_of(answer.subject), fired, wanted).rules
        names = " and ".join(rule.name for rule in rules)
        text += f": {names}" if names else ""
    return text + _format_bytes(mesh, fired, wanted)


def _format_bytes(mesh: Mesh, fired: Fired, wanted: Sequence[ExpectedCollectives]) -> str:
    """The bytes of a pass relative to its contract and to the least; "" if all are equal."""
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
