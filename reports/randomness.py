"""Which placements draw what one device draws, and which devices share numbers? By the records."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from adapters.answer import Answer, Done, Observed, Refused
from cases.arrays import unpack
from cases.catalogue import family
from cases.layout import Ranges, index_ranges, local_shape
from cases.model import Case, Layout
from cases.notation import to_placements
from reports.formatting import format_axes
from reports.judged_catalogue import ROUTES, end_word, format_frameworks
from reports.tell import recorded_answers
from reports.templates import DOCS, render

PAGE = DOCS / "randomness.md"

# What is drawn, by the prefix of a case's id. Draw a is compared with b, drawn on one device.
DRAWN = {
    "init-uniform": "`inplace_uniform`",
    "init-normal": "`inplace_normal`",
    "whole": "`random_uniform`, drawn whole and then split",
    "generator-philox4x32": "`random_uniform`, generator `philox4x32`",
    "generator-rbg": "`random_uniform`, generator `rbg`",
    "generator-unsafe-rbg": "`random_uniform`, generator `unsafe_rbg`",
    "seed-generator": "`inplace_uniform`, a generator of its own on each rank",
    "dropout": "`dropout`",
}
# What a case checks about seeds and order, by the prefix of its id.
ASKED = {
    "seed-twice": "the same seed gives the same numbers",
    "seed-another": "two seeds have no number in common",
    "seed-draws": "two draws from one seed have no number in common",
    "seed-mesh": "the seed is given to the mesh: the same one gives the same numbers",
    "later": "a replicated draw does not depend on the layout of an earlier one",
    "distinct-pp": "stages with seeds of their own share no number; their shards do not either",
    "distinct-x4-s0": "devices with seeds of their own share no number",
    "distinct-x4-r": "a seed for each device, of what is replicated: replicas are alike",
    "dropout-share": "a share of 1 - p is kept",
    "dropout-draws": "two masks from one seed differ",
    "dropout-gradient": "the gradient has the mask of the result",
    "dropout-x4-p": "a partial tensor is reduced first; each element is 0 or x / (1 - p)",
}


def page(answers: Callable[[Case], dict[str, Answer]] = recorded_answers) -> str:
    """The page, in Markdown; ``answers`` gives every subject's answer to a case."""
    placements, relations = [], []
    for case in family("random"):
        given = answers(case)
        if (relation := relation_asked(case.id)) is None:
            cells = [_placement_cell(case, given[route]) for route in ROUTES]
            placements.append([op_that_draws(case.id), _layout(case), *cells])
        else:
            cells = [_relation_cell(case, given[route]) for route in ROUTES]
            relations.append([relation, _layout(case), *cells])
    return render(
        PAGE.name, frameworks=format_frameworks(), routes=[*ROUTES], placements=placements,
        relations=relations,
    )  # fmt: skip


def relation_asked(id: str) -> str | None:
    """What a case checks about seeds, order or masks; None where it is about a placement."""
    return _text_by_prefix(id, ASKED)


def op_that_draws(id: str) -> str | None:
    """What a case about a placement draws."""
    return _text_by_prefix(id, DRAWN)


def _text_by_prefix(id: str, texts: dict[str, str]) -> str | None:
    heads = [head for head in texts if id.startswith(head)]
    return texts[max(heads, key=len)] if heads else None


def _layout(case: Case) -> str:
    mesh = case.question.mesh
    layout, shape = _drawn_tensor(case)
    sizes = "x".join(map(str, shape))
    return f"{sizes} as [{', '.join(to_placements(layout, mesh))}] on {format_axes(mesh)}"


def _drawn_tensor(case: Case) -> tuple[Layout, tuple[int, ...]]:
    """Layout and shape of what is drawn first: those requested, or those of its operand."""
    step = case.question.steps[0]
    given = next((one for one in case.question.inputs if one.name in step.args), None)
    if given is not None:
        return step.to or given.layout, given.shape
    shape = step.params["shape"]
    assert step.to is not None
    assert isinstance(shape, list)
    return step.to, tuple(int(size) for size in shape)


def _format_failure(answer: Answer) -> str:
    """How an answer ended that did not finish; "" for one that did."""
    match answer.end:
        case Done():
            return ""
        case Refused(error):
            return f"refuses: {error}"
        case _:
            return end_word(answer.end)


def _placement_cell(case: Case, answer: Answer) -> str:
    if ended := _format_failure(answer):
        return ended
    layout, shape = _drawn_tensor(case)
    seen, one = answer["a"], answer["b"]
    same = "as one" if seen.full == one.full else "other"
    held = index_ranges(case.question.mesh, layout, shape)
    parts = _parts(seen, held)
    if parts is None:
        return f"{same}, not split"
    if len(parts) == 1:
        return same
    common = list(_parts_in_common(parts, case.question.steps[0].op == "dropout"))
    if len(common) == len(list(itertools.combinations(parts, 2))):
        return f"{same}, all in common"
    pairs = ", ".join(" and ".join(map(_devices, pair)) for pair in common)
    return f"{same}, {pairs or 'none'} in common"


Parts = dict[tuple[int, ...], np.ndarray]


def _parts(seen: Observed, held: tuple[Ranges, ...]) -> Parts | None:
    """Each part of a draw, by the devices that hold it; None where it is not split as requested."""
    by_range: dict[Ranges, tuple[int, ...]] = {}
    for position, spans in enumerate(held):
        by_range[spans] = (*by_range.get(spans, ()), position)
    parts: Parts = {}
    for spans, positions in by_range.items():
        shards = [(seen.shards or ())[position] for position in positions]
        if any(shard is None or shard.shape != local_shape(spans) for shard in shards):
            return None
        assert shards[0] is not None
        parts[positions] = unpack(shards[0])
    return parts


def _parts_in_common(
    parts: Parts, masks: bool
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pairs of parts with numbers in common; for ``masks``, that are 0 at the same places."""
    for (one, left), (other, right) in itertools.combinations(parts.items(), 2):
        if masks:
            alike = left.shape == right.shape and bool(((left == 0) == (right == 0)).all())
        else:
            alike = bool(np.isin(left, right).any())
        if alike:
            yield one, other


def _devices(positions: tuple[int, ...]) -> str:
    return "+".join(map(str, positions))


def _relation_cell(case: Case, answer: Answer) -> str:
    """Whether the relations hold that the case expects, and whether ranks agree."""
    if ended := _format_failure(answer):
        return ended
    if any(len(set(seen.full)) > 1 for seen in answer.seen):
        return "ranks differ"
    wrong = []
    for name, right in case.expectation.right.items():
        got = unpack(answer[name].full[0])
        if not np.array_equal(got, unpack(right)):
            wrong.append(name)
    return "no" if wrong else "yes"
