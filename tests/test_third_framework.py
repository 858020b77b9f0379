"""Is a framework one package and one row of the registry? A toy goes through every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.registry import FRAMEWORKS, Framework, Lowering, check_registry, load_part
from cases.errors import BadInput
from suites.sources import pinned_releases
from tests.copies import copy_checkout, edit, python
from tests.copies import pytest as run_pytest

ROW = """
    "toy": Framework(
        adapter="tests.toys.third.adapter",
        subjects=("toy",),
        interface="tests.toys.third.interface",
        script="tests.toys.third.script",
    ),
}


def subjects() ->"""
RULE = Lowering("gossips", "it has a reason")
CASES = "negative-x4-s0 or negative-x4-s1 or abs-x4-s0"
# A cause of the toy's own fault.
CAUSE = """
[[cause]]
id = "toy-negative-adds-one"
subject = "toy"
observed = "wrong value"
relation = "plus a number"
cases = { step = "negative" }
why = "The toy adds 1 to the result."
unreported = "2026-12-01"
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the toy in its registry, and records and listings of two releases of it."""
    copy = copy_checkout(tmp_path_factory.mktemp("third"))
    edit(copy / "adapters" / "registry.py", "\n}\n\n\ndef subjects() ->", ROW)
    for release in ("1.0", "2.0"):
        _run(copy, release, "--torch=off", "--jax=off", "--record=records/",
             code=release == "2.0")  # fmt: skip
        python(copy, "-m", "adapters.interface", "toy", "records/", TOYSHARDS_RELEASE=release)
    return copy


def _run(copy: Path, release: str, *words: str, code: int = 0) -> str:
    return run_pytest(copy, "suites", "-k", CASES, *words, code=code, TOYSHARDS_RELEASE=release)


def test_a_run_holds_it_against_every_other_framework(checkout: Path) -> None:
    """It is asked and judged; its shards are compared with those of torch and of JAX."""
    others = [f"--{n}=records/{n}-{release}.jsonl" for n, release in pinned_releases().items()]
    out = _run(checkout, "1.0", *others, "--verdicts=verdicts.jsonl")
    lines = (checkout / "verdicts.jsonl").read_text().splitlines()
    assert '"toy":"1.0"' in lines[0]
    toy = [line for line in lines if '"subject":"toy"' in line and '"case":"abs-x4-s0"' in line]
    for against in ("reference", "torch", "jax/jit"):
        assert any(f'"against":"{against}"' in line for line in toy), out
    # Those before it in the registry are not held against it.
    assert not any('"against":"toy"' in line for line in lines)


def test_its_records_pin_its_answers(checkout: Path) -> None:
    """An answer that differs from its record fails."""
    out = _run(checkout, "1.0", "--torch=off", "--jax=off", "--baseline=records/toy-1.0.jsonl")
    assert "passed" in out
    edit(checkout / "tests/toys/third/toyshards.py", "np.negative(x)\n\nelse", "-x * 2\n\nelse")
    try:
        words = ("--torch=off", "--jax=off", "--baseline=records/toy-1.0.jsonl")
        assert "record" in _run(checkout, "1.0", *words, code=1)
    finally:
        edit(checkout / "tests/toys/third/toyshards.py", "-x * 2\n\nelse", "np.negative(x)\n\nelse")


def test_a_script_shows_its_fault(checkout: Path) -> None:
    """``--repro`` writes the script that the framework supplies."""
    words = ("--torch=off", "--jax=off", "--repro=scripts")
    out = _run(checkout, "2.0", *words, code=1)
    assert "scripts in scripts" in out
    script = "scripts/negative-x4-s0_toy.py"
    shown = python(checkout, script, code=1, TOYSHARDS_RELEASE="2.0", PYTHONPATH=str(checkout))
    assert "2.0 2.0 wanted" in shown
    python(checkout, script, TOYSHARDS_RELEASE="1.0", PYTHONPATH=str(checkout))


def test_pairs_compare_it_with_every_other_framework(checkout: Path) -> None:
    """Two others are compared too; its fault has no cause until the ledger names one."""
    pairs = ("-m", "reports.pairs", "--case", "negative-x4-s*")
    out = python(checkout, *pairs, code=1)
    for pair in ("torch by jax", "torch by toy", "jax by toy"):
        assert f"divergence, {pair}" in out
    assert "toy global: wrong" in out
    ledger = checkout / "cases" / "divergences" / "toy.toml"
    ledger.write_text(CAUSE)
    try:
        out = python(checkout, *pairs, "--causes")
        assert "explained by no cause:\nnone" in out
        assert "toy-negative-adds-one" in out
    finally:
        ledger.unlink()


def test_drift_shows_what_changed_in_it(checkout: Path) -> None:
    """The value that became wrong, and the new parameter of its public name."""
    python(checkout, "-m", "reports", "drift")
    page = (checkout / "docs" / "drift.md").read_text()
    section = page[page.index("toy 1.0 → 2.0") :]
    assert "negative-x4-s0" in section
    assert "exact" in section
    assert "toy" in (checkout / "docs" / "drift.html").read_text()
    assert "toy" in python(checkout, "-m", "reports", "drift", "--case", "negative-x4-s0")


def test_a_part_that_is_lost_is_told_in_one_line(checkout: Path) -> None:
    """By the listing, and by ``--repro`` before anything starts."""
    path = checkout / "tests/toys/third/script.py"
    moved = path.rename(path.with_name("scripts.py"))
    try:
        out = _run(checkout, "2.0", "--torch=off", "--jax=off", "--repro=scripts", code=4)
    finally:
        moved.rename(path)
    assert "script: found no module tests.toys.third.script, wanted a module with script" in out
    assert "Traceback" not in out
    path = checkout / "tests/toys/third/interface.py"
    edit(path, "MODULES = ", "ROOMS = ")
    try:
        out = python(checkout, "-m", "adapters.interface", "toy", "records/", code=2)
    finally:
        edit(path, "ROOMS = ", "MODULES = ")
    assert out.startswith('adapters/registry.py: framework "toy": interface: found tests.toys')


def test_tell_prints_what_it_did(checkout: Path) -> None:
    """From the newest of its records, beside the others."""
    out = python(checkout, "-m", "reports.tell", "negative-x4-s0")
    assert "(torch, jax/jit, jax/explicit)" in out
    assert "(toy)" in out


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (Framework("a", ()), "subjects: found none, wanted one at least, such as toy"),
        (Framework("a", ("jax/jit",)), "subjects: found jax/jit, wanted toy, or toy/route"),
        (Framework("a", ("toy",), ("toy/x",)), "executed: found toy/x, wanted one of: toy"),
        (Framework("a", ("toy",), ("toy",)), "executed: found every subject, wanted one at least"),
        (Framework("a", ("toy",), processes=0), "processes: found 0, wanted 1 at least"),
        (
            Framework("a", ("toy",), lowerings=((RULE, "all-gather", "gossip"),)),  # type: ignore[arg-type]
            "lowerings: found gossip, wanted one of: all-gather, all-reduce",
        ),
    ],
)
def test_a_row_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, row: Framework, told: str
) -> None:
    """With the framework, the key, what was found and what is wanted."""
    monkeypatch.setitem(FRAMEWORKS, "toy", row)
    with pytest.raises(BadInput) as error:
        check_registry()
    assert str(error.value).startswith(f'adapters/registry.py: framework "toy": {told}')


def test_a_name_that_no_option_can_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework's name stands in options, subjects and file names."""
    monkeypatch.setitem(FRAMEWORKS, "To-y", Framework("a", ("To-y",)))
    with pytest.raises(BadInput, match="found the name To-y, wanted lower-case letters"):
        check_registry()


def test_a_framework_that_is_not_there_is_refused() -> None:
    """With those that are."""
    with pytest.raises(BadInput, match="found no framework toy, wanted one of: torch, jax"):
        load_part("toy", "script")


@pytest.mark.parametrize(
    ("interface", "told"),
    [
        ("", "found none, wanted a module with MODULES, ROOTS"),
        ("tests.toys.nothing", "found no module tests.toys.nothing, wanted a module with"),
        ("tests.toys.plain", "found tests.toys.plain without MODULES, ROOTS, NAMES"),
    ],
)
def test_a_part_that_is_not_supplied_is_named(
    monkeypatch: pytest.MonkeyPatch, interface: str, told: str
) -> None:
    """Whether the row names none, there is no such module, or it lacks something."""
    monkeypatch.setitem(FRAMEWORKS, "toy", Framework("a", ("toy",), interface=interface))
    with pytest.raises(BadInput) as error:
        load_part("toy", "interface")
    assert str(error.value).startswith(f'adapters/registry.py: framework "toy": interface: {told}')
