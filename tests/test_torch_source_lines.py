"""Does the torch adapter write the right lines, and merge the reports of ranks? Without torch."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from adapters.answer import (
    Collective,
)
from adapters.torch_dtensor import merge_ranks
from adapters.torch_dtensor.rank_messages import Raised, RankObservation, Report, digest
from adapters.torch_dtensor.source_lines import step_source, variable_name
from adapters.torch_dtensor.task_lines import make_task
from adapters.unsupported import CannotAnswer
from cases.arrays import pack
from cases.model import (
    Param,
    Recipe,
    Step,
    mesh,
)
from cases.program import TensorType
from tests.torch_worker import (
    LINE,
    SQUARE,
    counted,
    layout,
    question,
    to,
    values,
)


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
        (Step("z", "power", (-2, "x")), "(-2) ** x"),
        (Step("z", "maximum", (1, "x")), "torch.clamp(x, min=1)"),
        (Step("z", "logical_and", ("x", True)), "torch.logical_and(x, torch.tensor(True))"),
        (Step("z", "add", ("x", float("inf")), to=layout("R R", SQUARE, 1)),
         "(x + float('inf')).redistribute(placements=[Replicate(), Replicate()])"),
        (Step("z", "slice", ("x",), {"axis": -2, "stop": 4, "step": 2}), "x[..., :4:2, :]"),
        (Step("z", "take", ("x", "max"), {"axis": 1}), "x[:, max_]"),
        (Step("z", "from_local", ("x",), to=layout("R S(0)", SQUARE, 1)),
         "DTensor.from_local(x, mesh, placements=[Replicate(), Shard(0)], run_check=False)"),
        (Step("z", "full", (), {"shape": [2], "value": 3}, layout("R R", SQUARE, 1)),
         "dtensor.full((2,), 3, dtype=torch.float32, device_mesh=mesh,"
         " placements=[Replicate(), Replicate()])"),
        (Step("z", "grad", ("x", "y")), "torch.autograd.grad(x, y, retain_graph=True)[0]"),
    ],
)  # fmt: skip
def test_a_line_is_python_that_runs_and_prints(step: Step, wanted: str) -> None:
    """A rank evaluates exactly this text, and a script prints it."""
    known = {"max": TensorType((2,), "int64")}
    assert step_source(step, SQUARE, known=lambda: known) == wanted


def shaped(
    op: str, shapes: Sequence[Sequence[int]], dtypes: str = "float32", **params: Param
) -> str:
    names = [f"x{i}" for i in range(len(shapes))]
    known = {
        name: TensorType(tuple(shape), dtype)
        for name, shape, dtype in zip(names, shapes, dtypes.split() * len(shapes))
    }
    return step_source(Step("y", op, tuple(names), params), LINE, "mesh", lambda: known)


def test_a_row_that_needs_shapes_has_them() -> None:
    """The line has the sizes and the number of dims as literals."""
    assert shaped("split", [[6, 4]], axis=0, sections=2, part=1) == "torch.split(x0, 3, dim=0)[1]"
    assert shaped("tile", [[6, 4]], axis=-1, repeats=3) == "torch.tile(x0, (1, 3))"
    assert shaped("pad", [[2, 3, 4]], axis=1, before=1, after=2) == "F.pad(x0, (0, 0, 1, 2))"
    assert shaped("flip", [[6, 4]], axis=None) == "torch.flip(x0, dims=(0, 1))"
    written = shaped("set_slice", [[8, 4], [1, 4]], axis=0, start=1, stop=8, step=3)
    wanted = (
        "torch.slice_scatter(x0, torch.broadcast_to(x1, (3, 4)), dim=0, start=1, end=8, step=3)"
    )
    assert written == wanted


def test_narrow_indices_are_widened_where_torch_takes_no_others() -> None:
    """Indices of 64 bits stay as they are."""
    both = [[8, 4], [8, 4]]
    narrow = shaped("take_along_axis", both, "float32 int32", axis=1)
    assert narrow == "torch.take_along_dim(x0, x1.long(), dim=1)"
    wide = shaped("take_along_axis", both, "float32 int64", axis=1)
    assert wide == "torch.take_along_dim(x0, x1, dim=1)"


def test_torch_repeats_no_indices() -> None:
    """NumPy repeats indices of size 1. In torch such a scatter is unsupported."""
    with pytest.raises(CannotAnswer, match="does not repeat"):
        shaped("scatter", [[8, 4], [1, 4], [1, 4]], "float32 int64 float32", axis=1)


def test_torch_takes_no_dims_for_all_dims() -> None:
    """A reduction over no dim has no line, instead of a wrong one."""
    with pytest.raises(CannotAnswer, match="no dims for all dims"):
        step_source(Step("y", "sum", ("x",), {"axis": []}), LINE)


def test_no_two_names_share_a_variable() -> None:
    """A name that gets a "_" does not become the name of another tensor."""
    names = ["mesh", "mesh_", "mesh__", "in", "in_", "x", "x_"]
    assert len({variable_name(name) for name in names}) == len(names)


def test_a_recipe_without_a_module_is_refused_by_name() -> None:
    """The task of a known recipe has no lines. It has the name of the recipe."""
    with pytest.raises(CannotAnswer, match="the recipe mlp: no module of that name"):
        make_task(question("recipe", LINE, [], recipe=Recipe("mlp")))
    lines = make_task(question("recipe", LINE, [], recipe=Recipe("mlp-tp")))
    assert (lines.inputs, lines.steps, lines.recipe) == ((), (), Recipe("mlp-tp"))


def _seen(rank: int, **more: object) -> RankObservation:
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
    return RankObservation(**(fields | more))  # type: ignore[arg-type]


BACKWARDS = mesh({"x": 4}, (3, 2, 1, 0))


def test_ranks_that_report_alike_are_one_observation() -> None:
    """Shards are in the order of mesh positions; bytes are those of the largest operand."""
    reports = {rank: Report((_seen(rank),)) for rank in range(4)}
    assert merge_ranks.find_differing_full_tensors(reports) == ()
    (seen,) = merge_ranks.merge_observations(BACKWARDS, reports, {}, {})
    assert values(seen.shards) == [[3], [2], [1], [0]]
    assert values(seen.full) == [[1.0, 2.0]]
    assert counted(seen.collectives) == [("all-gather", ("x",), 13)]
    assert seen.disagreements == ()


def test_a_rank_that_reports_otherwise_is_a_disagreement() -> None:
    """A sentence about the layout and one about the collectives name the rank."""
    other = _seen(1, layout=layout("S(0)", LINE, 1), collectives=())
    reports = {rank: Report((_seen(rank) if rank != 1 else other,)) for rank in range(4)}
    (seen,) = merge_ranks.merge_observations(BACKWARDS, reports, {}, {})
    assert [text.split(" reports")[0] for text in seen.disagreements] == [
        "layout: rank 1",
        "collectives: rank 1",
    ]


def test_differing_full_tensors_are_all_told() -> None:
    """There is one tensor for each mesh position, in order."""
    whole = {rank: pack(np.array([rank], "float32")) for rank in range(4)}
    reports = {
        rank: Report((_seen(rank, full=whole[3] if rank == 3 else digest(whole[rank])),))
        for rank in range(4)
    }
    assert merge_ranks.find_differing_full_tensors(reports) == ("y",)
    fulls = {rank: {"y": whole[rank]} for rank in range(4)}
    (seen,) = merge_ranks.merge_observations(BACKWARDS, reports, fulls, {})
    assert values(seen.full) == [[3], [2], [1], [0]]


def test_ranks_are_in_step_only_after_the_same_collectives() -> None:
    """After different collectives, one rank can wait for ever for the others."""
    fired = (Collective("all-gather", ("x",), 4, 8),)
    one = Raised("ValueError", "no", "y", False, fired)
    assert merge_ranks.raised_in_step([one, msgspec.structs.replace(one, line="nor I")])
    assert not merge_ranks.raised_in_step([one, msgspec.structs.replace(one, fired=())])
    assert not merge_ranks.raised_in_step([one, msgspec.structs.replace(one, place="z")])
    assert merge_ranks.format_error_differences(
        {0: one, 2: msgspec.structs.replace(one, line="nor I")}
    ) == ("rank 2 raised ValueError at y: nor I",)
