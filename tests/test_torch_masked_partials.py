"""Does looking at a result leave the program as it is? What can be reduced once only, in torch."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from adapters.answer import Answer, Done, Refused
from cases.arrays import pack
from cases.model import Foreign, Input, Layout, Step
from tests.torch_worker import LINE, Live, counting, given, layout, question, to, values


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    worker = Live(tmp_path_factory.mktemp("torch") / "printed")
    yield worker
    worker.close()


ROWS = [0, 3, 5, 7]
IDS = Input("ids", (4,), "int64", Layout(((),)), pack(np.array(ROWS)))
TABLE = given("table", [8, 4], "S(0)")
LOOKED_UP = counting([8, 4])[ROWS].tolist()
EMBEDDING = Step("h", "embedding", ("ids", "table"))


def _is_masked(answer: Answer, name: str) -> None:
    found = answer[name].layout
    assert isinstance(found, Foreign)
    assert "MaskP" in found.text


def test_a_masked_partial_that_the_program_reduces_is_looked_at_in_a_run_of_its_own(
    live: Live,
) -> None:
    """The program reduced it; the look reduces another, and is told what that alone fires."""
    steps = [EMBEDDING, to("out", "h", "R", ndim=2)]
    answer = live.ask(question("reduced", LINE, [IDS, TABLE], steps))
    assert answer.end == Done()
    _is_masked(answer, "h")
    assert values(answer["h"].full) == [LOOKED_UP]
    assert values(answer["out"].full) == [LOOKED_UP]
    assert answer["h"].collectives == ()
    (look,) = answer["h"].full_collectives or ()
    assert (look.kind, look.axes) == ("all-reduce", ("x",))
    assert answer["out"].collectives == (look,)
    assert answer.complaints == ()


def test_a_look_leaves_the_shard_of_a_masked_partial_as_the_program_made_it(live: Live) -> None:
    """To reduce it is to write zeros into it: what a device looked up for others is there still."""
    alone = live.ask(question("alone", LINE, [IDS, TABLE], [EMBEDDING]))
    _is_masked(alone, "h")
    assert values(alone["h"].full) == [LOOKED_UP]
    # Device 3 has rows 6 and 7 of the table, and its first row stands for those of others.
    assert values(alone["h"].shards)[3] == counting([8, 4])[[6, 6, 6, 7]].tolist()


def test_two_masked_partials_of_one_program_are_each_looked_at(live: Live) -> None:
    """After one another, and what is made of them too."""
    steps = [
        EMBEDDING,
        Step("k", "embedding", ("ids", "table")),
        to("a", "k", "R", ndim=2),
        Step("b", "multiply", ("a", 2)),
    ]
    answer = live.ask(question("two", LINE, [IDS, TABLE], steps))
    assert answer.end == Done()
    assert values(answer["h"].full) == values(answer["k"].full) == [LOOKED_UP]
    assert values(answer["b"].full) == [(2 * counting([8, 4])[ROWS]).tolist()]


def test_a_program_that_reduces_it_twice_still_ends_where_torch_raises(live: Live) -> None:
    """That is the program's own doing, whether or not it is looked at."""
    steps = [EMBEDDING, to("a", "h", "R", ndim=2), to("b", "h", "S(0)", ndim=2)]
    asked = question("twice", LINE, [IDS, TABLE], steps)
    for check in (("a", "b"), ("h", "a", "b")):
        answer = live.ask(msgspec.structs.replace(asked, check=check))
        assert isinstance(answer.end, Refused)
        assert (answer.end.error, answer.end.step) == ("AssertionError", "b")
    assert values(answer["h"].full) == [LOOKED_UP]


def test_a_plan_of_it_looks_in_a_run_of_its_own_too(live: Live) -> None:
    """With no data, the collectives of step and look are those of a run."""
    steps = [EMBEDDING, to("out", "h", "R", ndim=2)]
    asked = question("planned", LINE, [IDS, TABLE], steps)
    run = live.ask(asked)
    plan = live.ask(msgspec.structs.replace(asked, mode="dry run"))
    assert plan.end == Done()
    for name in ("h", "out"):
        assert plan[name].collectives == run[name].collectives
        assert plan[name].full_collectives == run[name].full_collectives


def test_a_gather_of_split_rows_is_no_other_case(live: Live) -> None:
    """It keeps a mask as an embedding does: it is the placement that is asked, not the op."""
    x = given("x", [8, 4], "S(0)")
    index = Input("i", (1, 4), "int64", layout("R", LINE, 2), pack(np.array([[0, 3, 5, 7]])))
    steps = [
        Step("h", "take_along_axis", ("x", "i"), {"axis": 0}),
        to("out", "h", "R", ndim=2),
    ]
    answer = live.ask(question("gather", LINE, [x, index], steps))
    _is_masked(answer, "h")
    assert answer.end == Done()
    wanted = np.take_along_axis(counting([8, 4]), np.array([[0, 3, 5, 7]]), 0).tolist()
    assert values(answer["h"].full) == values(answer["out"].full) == [wanted]
