"""What does the torch adapter do without torch? Lines of Python, and reports made into answers."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from adapters.answer import (
    Collective,
)
from adapters.torch_dtensor import merge
from adapters.torch_dtensor.ops import Unsayable, step_source, variable
from adapters.torch_dtensor.script import Unanswerable, task
from adapters.torch_dtensor.wire import Raised, Report, Seen, digest
from cases.arrays import pack
from cases.model import (
    Recipe,
    Step,
    mesh,
)
from cases.ops import OPS
from tests.torch_worker import (
    LINE,
    SQUARE,
    counted,
    layout,
    question,
    to,
    values,
)


def test_every_op_of_the_vocabulary_has_a_row() -> None:
    """A question of known ops is never unsupported for want of one."""
    for op in OPS.values():
        step = Step("z", op.name, op.args, dict.fromkeys(op.required, "ij,jk->ik"))
        assert step_source(step, LINE)


@pytest.mark.parametrize(
    ("step", "wanted"),
    [
        (Step("z", "subtract", (2, "x")), "2 - x"),
        (Step("z", "multiply", ("x", float("inf"))), "x * float('inf')"),
        (to("z", "x", "SS(0,2) S(0)", SQUARE),
         "x.redistribute(placements=[_StridedShard(0, split_factor=2), Shard(0)])"),
        (Step("z", "add", ("x", 1), to=layout("R R", SQUARE, 1)),
         "(x + 1).redistribute(placements=[Replicate(), Replicate()])"),
        (Step("z", "sum", ("mesh",), {"axis": [1, 0]}), "torch.sum(mesh_, dim=(1, 0))"),
    ],
)  # fmt: skip
def test_a_line_is_python_that_runs_and_prints(step: Step, wanted: str) -> None:
    """Exactly this is evaluated by a rank, and printed in a script."""
    assert step_source(step, SQUARE) == wanted


def test_torch_takes_no_dims_for_all_dims() -> None:
    """So a reduction over no dim has no line, rather than a wrong one."""
    with pytest.raises(Unsayable, match="no dims for all dims"):
        step_source(Step("y", "sum", ("x",), {"axis": []}), LINE)


def test_no_two_names_share_a_variable() -> None:
    """A name that is moved aside does not land on another."""
    names = ["mesh", "mesh_", "mesh__", "in", "in_", "x", "x_"]
    assert len({variable(name) for name in names}) == len(names)


def test_what_runs_on_no_data_has_no_lines() -> None:
    """Plan mode and recipes are refused with the reason."""
    for one in (
        question("plan", LINE, [], mode="plan"),
        question("recipe", LINE, [], recipe=Recipe("mlp")),
    ):
        with pytest.raises(Unanswerable):
            task(one)


def _seen(rank: int, **more: object) -> Seen:
    full = pack(np.array([1.0, 2.0], "float32"))
    fields: dict[str, object] = {
        "name": "y",
        "dtype": "float32",
        "shape": (2,),
        "layout": layout("R", LINE, 1),
        "mesh": None,
        "shard": pack(np.array([rank])),
        "offset": (0,),
        "full": full if rank == 3 else digest(full),
        "collectives": (Collective("all-gather", ("x",), 4, 10 + rank),),
        "full_collectives": (),
    }
    return Seen(**(fields | more))  # type: ignore[arg-type]


BACKWARDS = mesh({"x": 4}, (3, 2, 1, 0))


def test_ranks_that_report_alike_are_one_observation() -> None:
    """In mesh position order, with the bytes of the rank where the operand is largest."""
    reports = {rank: Report((_seen(rank),)) for rank in range(4)}
    assert merge.differing(reports) == ()
    (seen,) = merge.observed(BACKWARDS, ("y",), reports, {})
    assert values(seen.shards) == [[3], [2], [1], [0]]
    assert values(seen.full) == [[1.0, 2.0]]
    assert counted(seen.collectives) == [("all-gather", ("x",), 13)]
    assert seen.disagreements == ()


def test_a_rank_that_reports_otherwise_is_a_disagreement() -> None:
    """Layout and collectives each give a sentence that names the rank."""
    other = _seen(1, layout=layout("S(0)", LINE, 1), collectives=())
    reports = {rank: Report((_seen(rank) if rank != 1 else other,)) for rank in range(4)}
    (seen,) = merge.observed(BACKWARDS, ("y",), reports, {})
    assert [text.split(" reports")[0] for text in seen.disagreements] == [
        "layout: rank 1",
        "collectives: rank 1",
    ]


def test_differing_full_tensors_are_all_told() -> None:
    """One for each mesh position, in order."""
    whole = {rank: pack(np.array([rank], "float32")) for rank in range(4)}
    reports = {
        rank: Report((_seen(rank, full=whole[3] if rank == 3 else digest(whole[rank])),))
        for rank in range(4)
    }
    assert merge.differing(reports) == ("y",)
    fulls = {rank: {"y": whole[rank]} for rank in range(4)}
    (seen,) = merge.observed(BACKWARDS, ("y",), reports, fulls)
    assert values(seen.full) == [[3], [2], [1], [0]]


def test_ranks_are_in_step_only_after_the_same_collectives() -> None:
    """Else one of them may wait for what the others never join."""
    fired = (Collective("all-gather", ("x",), 4, 8),)
    one = Raised("ValueError", "no", "y", False, fired)
    assert merge.in_step([one, msgspec.structs.replace(one, line="nor I")])
    assert not merge.in_step([one, msgspec.structs.replace(one, fired=())])
    assert not merge.in_step([one, msgspec.structs.replace(one, place="z")])
    assert merge.differently({0: one, 2: msgspec.structs.replace(one, line="nor I")}) == (
        "rank 2 raised ValueError at y: nor I",
    )
