"""Which cases a cause of a ledger can show in, and what a ledger may say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from adapters.registry import subjects
from cases.errors import BadInput
from cases.facts import facts
from cases.ledger import OBSERVATIONS, RELATIONS, Cause, can_show_in, check_unique, load_ledger
from cases.load import load
from cases.model import Case
from suites.cause_matching import ops_at_fault

CASES = """
[[case]]
id = "mesh-order/T41"
mesh = { x = 4 }
devices = [3, 2, 1, 0]
tags = ["public", "order"]
inputs.x = { shape = [4, 2], spec = "P()" }
program = ["s = redistribute(x, x=S(0))", "y = redistribute(s, x=R)"]

[[case]]
id = "uneven-input"
mesh = { x = 4 }
tags = ["public"]
inputs.x = { shape = [5], dtype = "int32", placements = ["S(0)"] }

[[case]]
id = "uneven-result"
mesh = { a = 2, b = 2 }
inputs.x = { shape = [3, 4], placements = { a = "S(1)", b = "P(max)" } }
program = ["y = sum(x, axis=1)"]
to.y = { b = "S(0)" }

[[case]]
id = "even"
mesh = { a = 2, b = 2 }
inputs.x = { shape = [8, 4], placements = ["S(0)", "S(1)"] }
program = ["y = sum(x, axis=1)", "z = redistribute(y, a=P(sum))"]
"""


@pytest.fixture
def cases(tmp_path: Path) -> tuple[Case, ...]:
    """Four cases that differ in every static fact."""
    file = tmp_path / "family.toml"
    file.write_text(CASES)
    return load(file)


def _cause(tmp_path: Path, cases: str = "", more: str = "") -> Cause:
    file = tmp_path / "ledger.toml"
    file.write_text(
        f"""
        [[cause]]
        id = "e"
        subject = "torch"
        observed = "refused"
        message = "not supported"
        {f"cases = {cases}" if cases else ""}
        why = "It is so."
        link = "https://github.com/pytorch/pytorch/pull/193224"
        {more}
        """
    )
    (cause,) = load_ledger(file, subjects())
    return cause


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ("{ axes = 1 }", ["mesh-order/T41", "uneven-input"]),
        ("{ devices = 4, axes = 2 }", ["uneven-result", "even"]),
        ("{ devices = 8 }", []),
        ("{ ascending = false }", ["mesh-order/T41"]),
        ("{ ascending = true, axes = 1 }", ["uneven-input"]),
        ('{ dtype = "int32" }', ["uneven-input"]),
        ("{ uneven = true }", ["uneven-input", "uneven-result"]),
        ("{ uneven = false }", ["mesh-order/T41", "even"]),
        ('{ partial = "max" }', ["uneven-result"]),
        ('{ partial = ["sum", "avg"] }', ["even"]),
        ('{ indivisible = "input" }', ["uneven-input"]),
        ('{ step = "redistribute" }', ["mesh-order/T41", "even"]),
        ('{ step = "red*" }', ["mesh-order/T41", "even"]),
        ('{ step = "sum" }', ["uneven-result", "even"]),
        ('{ step = "matmul" }', []),
        ('{ recipe = "mlp-tp" }', []),
        ('{ context = "loss_parallel" }', []),
    ],
)
def test_a_cause_shows_where_all_its_facts_are_so(
    wanted: str, named: list[str], cases: tuple[Case, ...], tmp_path: Path
) -> None:
    """By what is plain before anything runs, and never by the name of a case."""
    cause = _cause(tmp_path, wanted)
    assert [
        case.id for case in cases if can_show_in(cause, case, facts(case), ops_at_fault(case, None))
    ] == named


@pytest.mark.parametrize(
    ("step", "ops"),
    [
        ("x", {"input"}),
        ("s", {"redistribute"}),
        ("y/full", {"full"}),
        (None, {"program", "redistribute"}),
    ],
)
def test_what_can_be_at_fault_is_an_op(
    step: str | None, ops: set[str], cases: tuple[Case, ...]
) -> None:
    """An input and materialising have names of their own."""
    assert ops_at_fault(cases[0], step) == ops


GRADIENT = """
[[case]]
id = "g"
mesh = { x = 2 }
program = ["h = exp(x)", "k = square(h)", "l = sum(k)", "g = grad(l, x)", "m = abs(k)"]
check = ["h", "g", "m"]
inputs.x = { shape = [4], spec = "P('x')" }
"""


@pytest.mark.parametrize(
    ("step", "ops"),
    [("h", {"exp"}), ("m", {"abs", "square"}), ("g", {"grad", "sum", "square", "exp"})],
)
def test_an_unchecked_step_and_the_way_of_a_gradient_can_be_at_fault(
    step: str, ops: set[str], tmp_path: Path
) -> None:
    """Nobody looked at the former, and the latter is differentiated as a whole."""
    file = tmp_path / "g.toml"
    file.write_text(GRADIENT)
    (case,) = load(file)
    assert ops_at_fault(case, step) == ops


def test_a_cause_keeps_what_is_said_of_it(tmp_path: Path) -> None:
    """Every field is read; a subject may be a framework, for all its routes."""
    file = tmp_path / "ledger.toml"
    file.write_text(
        """
        [[cause]]
        id = "e"
        subject = ["jax", "torch"]
        observed = ["wrong value", "crashed"]
        aspect = "gradients"
        relation = "times a number"
        message = "SIGABRT"
        cases = { step = "mse_loss", uneven = true }
        why = "It is so."
        unreported = "2026-11-30"
        [[documented]]
        id = "d"
        subject = "torch"
        observed = "wrong value"
        relation = ["zeros", "NaN"]
        why = "The page says so."
        link = "https://docs.pytorch.org/docs/stable/distributed.tensor.html"
        """
    )
    cause, documented = load_ledger(file, subjects())
    assert (cause.subject, cause.observed) == (("jax", "torch"), ("wrong value", "crashed"))
    assert (cause.aspect, cause.relation) == (("gradients",), ("times a number",))
    assert (cause.message, cause.cases.step, cause.cases.uneven) == (
        "SIGABRT", ("mse_loss",), True,
    )  # fmt: skip
    assert (cause.unreported, cause.link, cause.documented) == ("2026-11-30", "", False)
    assert documented.documented
    assert documented.link.endswith("distributed.tensor.html")
    assert documented.file == str(file)


@pytest.mark.parametrize("observed", OBSERVATIONS)
def test_every_kind_of_observation_can_have_a_cause(observed: str, tmp_path: Path) -> None:
    """With a message where it is a refusal, and a relation where it is a wrong value."""
    more = {"refused": 'message = "no"', "wrong value": f'relation = "{RELATIONS[0]}"'}
    file = tmp_path / "ledger.toml"
    file.write_text(
        f'[[cause]]\nid = "e"\nsubject = "torch"\nwhy = "So."\nobserved = "{observed}"\n'
        + more.get(observed, "")
    )
    (cause,) = load_ledger(file, subjects())
    assert cause.observed == (observed,)


def test_a_ledger_may_be_empty(tmp_path: Path) -> None:
    """A ledger without causes knows of nothing."""
    file = tmp_path / "ledger.toml"
    file.write_text("# Nothing diverges.\n")
    assert load_ledger(file, subjects()) == ()


def test_an_id_in_two_ledgers_is_refused(tmp_path: Path) -> None:
    """A user's ledger may not reuse an id of the project's."""
    cause = _cause(tmp_path, "{ axes = 1 }")
    again = _cause(tmp_path, "{ axes = 2 }")
    check_unique([cause])
    with pytest.raises(BadInput, match=r'cause "e": id: found an id that .* has already, wanted'):
        check_unique([cause, again])


def test_the_files_of_a_folder_are_one_ledger(tmp_path: Path) -> None:
    """In the order of their names; an id may be in one of them only."""
    _cause(tmp_path, "{ axes = 1 }")
    text = (tmp_path / "ledger.toml").read_text()
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("b", "a"):
        (folder / f"{name}.toml").write_text(text.replace('id = "e"', f'id = "{name}"'))
    (folder / "notes.md").write_text("no causes")
    assert [cause.id for cause in load_ledger(folder, subjects())] == ["a", "b"]
    shutil.copy(folder / "a.toml", folder / "c.toml")
    with pytest.raises(BadInput, match=r"c\.toml.*an id that .*a\.toml has already"):
        load_ledger(folder, subjects())
