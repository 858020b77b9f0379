"""What does a change of placement cost? The lesson on one screen, from the committed records.

``python -m reports.lesson`` prints what docs/lesson.md shows.
"""

from __future__ import annotations

import sys

from adapters.answer import Answer, Done, Observed, Refused
from cases.arrays import unpack
from cases.catalogue import family
from cases.model import Case, Layout
from cases.notation import to_placements
from reports.tell import recorded_answers
from suites.wording import format_collectives

SUBJECTS = ("torch", "jax/jit", "jax/explicit")
# The id of a case, and the words for its change.
ROWS = (
    ("lesson-s0-to-r", "S(0) to R"),
    ("lesson-r-to-s0", "R to S(0)"),
    ("lesson-s0-to-s1", "S(0) to S(1)"),
    ("lesson-matmul-s1-by-s0", "matmul of S(1) by S(0)"),
    ("lesson-matmul-r-by-s1", "matmul of R by S(1)"),
)


def page() -> list[str]:
    """The lines of the transcript."""
    cases = {case.id: case for case in family("lesson")}
    lines = [*_shards(cases["lesson-local-shards"]), ""]
    lines.append(_row("on x=4", SUBJECTS))
    for id, change in ROWS:
        answers = recorded_answers(cases[id])
        lines.append(_row(change, [_cell(cases[id], answers[subject]) for subject in SUBJECTS]))
    product = recorded_answers(cases["lesson-matmul-s1-by-s0"])
    paid = [_full(product[subject]) for subject in SUBJECTS]
    lines.append(_row("full tensor of S(1) by S(0)", paid))
    (row,) = {str(unpack(product[s]["y"].full[0])[0]) for s in ("torch", "jax/jit")}
    lines += ["", f"row 0 of the product, in torch and jax/jit: {row.replace('.', '')}"]
    return [*lines, "", *_training(cases["lesson-tensor-parallel"])]


def _row(head: str, cells: list[str] | tuple[str, ...]) -> str:
    return (f"{head:<28}" + "".join(f"{cell:<28}" for cell in cells)).rstrip()


def _shards(case: Case) -> list[str]:
    answers = recorded_answers(case)
    mesh = case.question.mesh
    (held,) = {answers[subject]["x"].shards for subject in SUBJECTS}
    grid = f"[{list(mesh.devices[:2])}, {list(mesh.devices[2:])}]"
    lines = [f"on dp=2, tp=2, devices {grid}: arange(16) as 4x4 under [S(0), S(1)], in all three"]
    for device, shard in enumerate(held or ()):
        assert shard is not None
        values = unpack(shard).ravel().astype(int).tolist()
        lines.append(f"  device {device} holds {values}, local shape {list(shard.shape)}")
    return lines


def _training(case: Case) -> list[str]:
    """The tensor-parallel MLP: layouts of its weights, collectives of a step, and its output."""
    answers = recorded_answers(case)
    lines = ["on tp=2: Linear(4 to 8), ReLU, Linear(8 to 4) through parallelize_module or one jit"]
    for name in ("up.weight", "down.weight"):
        (weight,) = {_weight(case, answers[subject][name]) for subject in SUBJECTS[:2]}
        lines.append(f"  {name} {weight}, in torch and jax/jit")
    lines.append(_row("", SUBJECTS[:2]))
    for pass_ in ("forward", "backward"):
        programs = (answers[subject].program or () for subject in SUBJECTS[:2])
        fired = [format_collectives(c for c in one if c.pass_ == pass_) for one in programs]
        lines.append(_row(pass_, fired))
    out = answers["torch"]["out"]
    lines.append(f"torch's output of shape {list(out.shape)} arrives as {out.note}")
    return lines


def _weight(case: Case, seen: Observed) -> str:
    (local,) = {shard.shape for shard in seen.shards or () if shard is not None}
    where = _placements(case, seen)
    return f"of shape {list(seen.shape)} lies at {where}, local shape {list(local)}"


def _cell(case: Case, answer: Answer) -> str:
    if isinstance(answer.end, Refused):
        return f"refused: {answer.end.error}"
    assert isinstance(answer.end, Done)
    seen = answer["y"]
    fired = answer.program if answer.program is not None else seen.collectives
    assert fired is not None
    return f"{format_collectives(fired)}; gives {_placements(case, seen)}"


def _placements(case: Case, seen: Observed) -> str:
    if not isinstance(seen.layout, Layout):
        return "no layout"
    return ", ".join(to_placements(seen.layout, case.question.mesh))


def _full(answer: Answer) -> str:
    seen = next((one for one in answer.seen if one.name == "y"), None)
    if seen is None:
        return "-"
    fired = seen.full_collectives
    return "paid already" if fired is None else format_collectives(fired)


if __name__ == "__main__":
    sys.stdout.write("\n".join(page()) + "\n")
