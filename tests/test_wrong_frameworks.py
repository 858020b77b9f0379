"""Is a wrong framework caught? At the right case, step, device and index, whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs import Ran, run

CASES = str(Path(__file__).with_name("data") / "wrong.toml")


def stand_in(folder: Path, wrong: str, *args: str) -> Ran:
    """A run of the small cases against a torch that is wrong in one way."""
    return run(
        folder, "-p", "tests.toys.stand_in", f"--cases={CASES}", "--jax=off", *args,
        TOY_WRONG=wrong,
    )  # fmt: skip


def test_a_right_framework_passes(tmp_path: Path) -> None:
    """The same toy without a mistake: the verdicts below come from the mistakes alone."""
    ran = stand_in(tmp_path, "")
    assert ran.code == 0, ran.out
    assert ran.diverging() == set()


@pytest.mark.parametrize(
    ("wrong", "case", "aspects", "told"),
    [
        ("axes swapped", "exchange", {"soundness"}, ["device 1 (a=0, b=1)", "first at [0, 0]"]),
        (
            "reduction dropped", "reduce", {"global", "effects"},
            ["first at [0, 0]: wanted 1111.0, got 1.0"],
        ),
        ("reduction doubled", "reduce", {"global"}, ["first at [0, 0]: wanted 1111.0, got 2222.0"]),
        ("ranks permuted", "exchange", {"soundness"}, ["device 0 (a=0, b=0)"]),
        ("wrong device order", "reversed", {"soundness"}, ["device 3 (x=0)", "[[6 7]]"]),
        ("stale shard", "swap", {"soundness"}, ["device 1 (x=1)", "first at [0, 0]"]),
        ("one collective too many", "gather", {"collectives"}, ["all-gather(x), all-reduce(x)"]),
        (
            # No more is asked of a step than to get there, but nothing gets there by nothing.
            "one collective too few", "gather", {"effects"},
            ["the collectives counted at y cannot be what happened"],
        ),
        (
            "wrong layout", "gather", {"soundness", "layout", "collectives"},
            ["wanted  a shard of shape [1, 2]", "[S(0)]"],
        ),
        ("one rank apart", "gather", {"soundness", "global"}, ["device 3 (x=3)"]),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_where_it_is(
    tmp_path: Path, wrong: str, case: str, aspects: set[str], told: list[str]
) -> None:
    """In its case and at its step only, in the aspects that it breaks, with device and index."""
    # What costs too much fails a user's own case only if it is told to.
    ran = stand_in(tmp_path, wrong, "--fail-on=wrong,refused,costly")
    assert ran.code == 1
    found = {(one, step, aspect) for one, step, aspect, _ in ran.diverging()}
    # The cost of materialising follows from the layout that was claimed.
    assert found - {(case, "y/full", "collectives")} == {(case, "y", one) for one in aspects}
    for text in told:
        assert text in ran.out


@pytest.mark.parametrize(
    ("wrong", "case", "step", "told"),
    [
        ("wrong grid", "views", "n", ["device 3 (w=3)", "wanted  [2 3]", "got     [3 2]"]),
        ("wrong group", "views", "m/a", ["device 3 (w=3)", "wanted  [1 3]", "got     [3 1]"]),
        (
            "wrong coordinate", "views", "m",
            ["device 0 (w=0)", "wanted  coordinate [0, 0]", "got     coordinate [1, 1]"],
        ),
        ("wrong comparison", "views", "same", ["wanted False, got True"]),
        ("no refusal", "refusal", "m", ["wanted  a refusal", "got     [0 1 2]"]),
    ],
)  # fmt: skip
def test_a_mistake_in_a_mesh_is_reported_where_it_is(
    tmp_path: Path, wrong: str, case: str, step: str, told: list[str]
) -> None:
    """A grid, a group, a coordinate, an equality, or a mesh where there can be none."""
    ran = stand_in(tmp_path, wrong)
    assert ran.code == 1
    assert {one[:3] for one in ran.diverging()} == {(case, step, "meshes")}
    for text in told:
        assert text in ran.out


def test_a_crash_is_the_answer_of_its_case(tmp_path: Path) -> None:
    """The process aborts in one case; the others are answered by a new one."""
    ran = stand_in(tmp_path, "crash")
    assert ran.diverging() == {("reduce", None, "ending", "torch")}
    assert "crashed: SIGABRT" in ran.out


def test_a_hang_is_the_answer_of_its_case(tmp_path: Path) -> None:
    """A framework that never answers is ended at the deadline, and says where it was."""
    ran = stand_in(tmp_path, "hang", "--deadline", "1")
    assert ran.diverging() == {("reduce", None, "ending", "torch")}
    assert "hung" in ran.out
    assert "in observe" in ran.out


def test_chatter_damages_nothing(tmp_path: Path) -> None:
    """Whatever a framework prints, its answers arrive."""
    ran = stand_in(tmp_path, "chatter")
    assert ran.code == 0, ran.out


def test_another_protocol_is_turned_away(tmp_path: Path) -> None:
    """A worker of another version ends the run with one line, as bad usage does."""
    ran = stand_in(tmp_path, "protocol version")
    assert ran.code == 4
    assert "found protocol 2, wanted protocol 1" in ran.out
