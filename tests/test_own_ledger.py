"""What excuses a user's own cases? A cause of their own, and only what fits it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from adapters.registry import FRAMEWORKS
from suites.sources import RECORDS
from tests.runs import Ran, run
from tests.test_wrong_frameworks import stand_in

DOUBLED = """
[[cause]]
id = "toy-doubles"
subject = "torch"
observed = "wrong value"
relation = "times a number"
cases = { step = "redistribute", partial = "sum" }
why = "The toy adds everything twice."
unreported = "2026-11-30"
"""


def with_ledger(folder: Path, wrong: str, text: str, *args: str) -> Ran:
    """A run of the small cases with a ledger of the user's own."""
    path = folder / "own.toml"
    path.write_text(text)
    return stand_in(folder, wrong, f"--ledger={path}", *args)


def test_what_a_cause_explains_passes(tmp_path: Path) -> None:
    """It is counted as known, with the id of its cause."""
    ran = with_ledger(tmp_path, "reduction doubled", DOUBLED)
    assert ran.code == 0, ran.out
    known = {(v["case"], v["step"], v["ledger"]) for v in ran.verdicts if v["verdict"] == "known"}
    assert known == {("reduce", "y", "toy-doubles")}
    assert "toy-doubles" in ran.out


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("crash", DOUBLED),
        ("reduction doubled", DOUBLED.replace("times a number", "NaN")),
        ("reduction doubled", DOUBLED.replace('"sum"', '"max"')),
        ("reduction doubled", DOUBLED.replace('step = "redistribute"', 'step = "matmul"')),
        ("reduction doubled", DOUBLED.replace('subject = "torch"', 'subject = "jax"')),
        ("reduction doubled", ""),
    ],
)
def test_another_failure_is_not_excused(tmp_path: Path, wrong: str, text: str) -> None:
    """Another kind, another relation, other facts or another subject is another fault."""
    ran = with_ledger(tmp_path, wrong, text)
    assert ran.code == 1
    assert {one[0] for one in ran.diverging()} == {"reduce"}


@pytest.mark.parametrize("extra", [("-k", "gather"), ("-n", "2"), ("-k", "reduce or swap")])
def test_a_part_of_the_cases_is_safe(tmp_path: Path, extra: tuple[str, ...]) -> None:
    """Causes of cases that do not run are not missed, in one process or in several."""
    ran = with_ledger(tmp_path, "reduction doubled", DOUBLED, *extra)
    assert ran.code == 0, ran.out


KNOWN = """
[[case]]
id = "loss"
mesh = { dp = 4 }
program = ["l = mse_loss(x, t)", "g = grad(l, x)"]
[case.inputs]
x = { shape = [8, 4], dtype = "float64", spec = "P('dp')" }
t = { shape = [8, 4], dtype = "float64", spec = "P('dp')", values = 1 }
"""


def test_the_project_s_ledger_names_the_cause_and_excuses_nothing(tmp_path: Path) -> None:
    """A user's own case that meets a known fault fails, and is told which it is."""
    cases = tmp_path / "loss.toml"
    cases.write_text(KNOWN)
    ran = run(tmp_path, f"--cases={cases}", "--jax=off")
    assert ran.code == 1, ran.out
    (bad,) = (v for v in ran.verdicts if v["verdict"] == "divergence")
    assert (bad["severity"], bad["step"]) == ("wrong", "g")
    assert bad["ledger"]
    assert f"known cause: {bad['ledger']}" in ran.out


FREE = """
[[case]]
id = "free"
mesh = { x = 2 }
program = ["y = matmul(a, b)"]
inputs.a = { shape = [4, 4], spec = "P(None, 'x')" }
inputs.b = { shape = [4, 6], spec = "P('x')" }
"""


def test_fail_on_chooses_what_fails(tmp_path: Path) -> None:
    """Each severity by itself; one that there is not is refused."""
    cases = tmp_path / "loss.toml"
    cases.write_text(KNOWN)
    kept = tmp_path / "kept"
    kept.mkdir()
    ran = run(tmp_path, f"--cases={cases}", "--jax=off", "--fail-on=wrong", f"--record={kept}/")
    assert ran.code == 1, ran.out
    (path,) = kept.glob("torch-*.jsonl")
    for severities in ("refused", "refused,costly"):
        ran = run(
            tmp_path, f"--cases={cases}", f"--torch={path}", "--jax=off", f"--fail-on={severities}"
        )
        assert ran.code == 0, ran.out
    # A layout that nobody asked for fails where somebody says that it does.
    free = tmp_path / "free.toml"
    free.write_text(FREE)
    ran = run(tmp_path, f"--cases={free}", "--fail-on=wrong", f"--record={kept}/")
    assert ran.code == 0, ran.out
    both = [f"--{one}={next(kept.glob(f'{one}-*.jsonl'))}" for one in FRAMEWORKS]
    for severities in ("free", "route refused"):
        ran = run(tmp_path, f"--cases={free}", *both, f"--fail-on={severities}")
        assert ran.code == 1, ran.out
    ran = run(tmp_path, f"--cases={cases}", "--fail-on=bad")
    assert ran.code == 4
    assert "--fail-on: found 'bad', wanted one or more of wrong, refused" in ran.out


GATHER = """
[[case]]
id = "gather"
mesh = { x = 4 }
program = ["y = redistribute(x, x=R)"]
inputs.x = { shape = [8], spec = "P('x')" }
"""


def recorded(folder: Path) -> tuple[Path, Path]:
    """The file of a case that gathers, and torch's record of it in a folder of its own."""
    cases, kept = folder / "gather.toml", folder / "kept"
    cases.write_text(GATHER)
    kept.mkdir()
    assert run(folder, f"--cases={cases}", "--jax=off", f"--record={kept}/").code == 0
    return cases, next(kept.glob("*.jsonl"))


def test_a_baseline_pins_a_user_s_own_cases(tmp_path: Path) -> None:
    """What was recorded passes again; another answer to the same question fails."""
    cases, path = recorded(tmp_path)
    again = (f"--cases={cases}", "--jax=off", f"--baseline={path.parent}")
    ran = run(tmp_path, *again)
    assert ran.code == 0, ran.out
    as_it_was = shutil.copytree(path.parent, tmp_path / "as it was") / path.name
    path.write_text(path.read_text().replace("all-gather x", "all-reduce x"))
    ran = run(tmp_path, *again)
    assert ran.code == 1, ran.out
    changed = {(v["step"], v["against"]) for v in ran.verdicts if v["verdict"] == "divergence"}
    assert ("y", "record") in changed
    assert {against for _, against in changed} == {"record"}
    assert "collectives in the record" in ran.out
    assert {v["aspect"] for v in ran.verdicts if v["verdict"] == "divergence"} == {"record"}
    # What is read from a record is held against the one that is named, too.
    ran = run(tmp_path, *again, f"--torch={as_it_was}")
    assert ran.code == 1, ran.out


def test_a_baseline_without_its_arrays_is_refused_at_once(tmp_path: Path) -> None:
    """In one line, before a framework starts."""
    cases, path = recorded(tmp_path)
    (path.parent / path.name.replace(".jsonl", ".values.xz")).unlink()
    ran = run(tmp_path, f"--cases={cases}", "--jax=off", f"--baseline={path}")
    assert ran.code == 4
    assert len(ran.out.strip().splitlines()) == 1, ran.out


def test_a_baseline_with_a_release_that_is_none_is_refused_at_once(tmp_path: Path) -> None:
    record = next(RECORDS.glob("torch-2.13.0.jsonl"))
    head, *lines = record.read_text().splitlines()
    other = tmp_path / "torch-other.jsonl"
    other.write_text("\n".join([head.replace("2.13.0+cpu", "abc"), *lines]) + "\n")
    ran = run(tmp_path, f"--baseline={other}", "--jax=off", "-k", "x4-s0-to-r")
    assert ran.code == 4
    assert "release: found 'abc', wanted a version such as 2.13.0" in ran.out


def test_an_answer_that_no_named_record_holds_is_told(tmp_path: Path) -> None:
    """A question that changed since its record was made is not pinned, and the summary says so."""
    cases, path = recorded(tmp_path)
    cases.write_text(GATHER.replace("shape = [8]", "shape = [12]"))
    ran = run(tmp_path, f"--cases={cases}", "--jax=off", f"--baseline={path.parent}")
    assert ran.code == 0, ran.out
    assert "not pinned: gather, torch: no record of --baseline holds this question" in ran.out
    (line,) = (v for v in ran.verdicts if v["aspect"] == "record")
    assert line["verdict"] == "not comparable"
