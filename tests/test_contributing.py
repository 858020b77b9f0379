"""Does each recipe of CONTRIBUTING.md work? Each is followed in a copy of the checkout.

A framework has a test of its own, `test_third_framework`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.copies import copy_checkout, edit, python
from tests.copies import pytest as run_pytest
from tests.runs import ROOT

PAGES = (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md")
TABLE = "tests/test_torch_op_table.py", "tests/test_jax_op_table.py"

CASE = """
[[case]]
id = "lesson-of-a-newcomer"
mesh = { tp = 2 }
program = ["y = sum(x, axis=0)"]
[case.inputs]
x = { shape = [4, 2], spec = "P('tp')", values = "arange" }
"""
CAUSE = """
[[cause]]
id = "torch-of-a-newcomer"
subject = "torch"
observed = "wrong value"
relation = "times a number"
cases = { step = "std" }
why = "A newcomer believes this."
unreported = "2026-12-01"
"""
ASPECT = '''

def check_bounds(context: Context, seen: Observed) -> Finding | None:
    """Does each shard begin inside the tensor?"""
    for wanted, got in zip([seen.shape] * len(seen.offsets or ()), seen.offsets or ()):
        if got is not None and any(one > most for one, most in zip(got, wanted)):
            return differs(seen.name, "bounds", seen_as.WrongShape(wanted, got))
    return agree(seen.name, "bounds")


TENSOR_ASPECTS: tuple'''
ROW = """    TensorAspect("bounds", ("offsets",), check_bounds),
    TensorAspect("shards","""
MISTAKE = """
def _outside(case: Case, mesh: Mesh, observed: Observed) -> Observed | None:
    size = observed.full[0].size if observed.full else 0
    if not size or not observed.shape or observed.name.partition("/")[0] in mesh_names(case):
        return None
    return msgspec.structs.replace(
        observed, offsets=(tuple(one + 1 for one in observed.shape),) * mesh.size
    )


_MISTAKES: tuple"""
MISTAKE_ROW = '''    ("shards outside", frozenset({"bounds"}), _outside),
    ("axes swapped"'''
RELEASE = "    py311-torch-2.15.0: torch==2.15.0\n"
RECIPE = '''    RecipeKind(
        "mlp-along", "mlp", ("along",), "as mlp-tp, along another axis", tensor="along"
    ),
    RecipeKind("mlp-tp"'''
CONTRACT = """    "mlp-along": Contract(_sums("along", "batch * dim * itemsize"), _MEGATRON),
    "mlp-tp": Contract"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout."""
    return copy_checkout(tmp_path)


def test_the_pages_name_only_files_that_are_there() -> None:
    """A path in them leads somewhere."""
    for page in PAGES:
        text = page.read_text()
        paths = re.findall(r"(?:adapters|cases|suites|reports|tests|docs)/[\w/.]*\w(?!<|\w)", text)
        assert paths
        lost = [one for one in paths if not (ROOT / one).exists()]
        assert lost == [], page.name


def test_a_case(checkout: Path) -> None:
    """It runs in both frameworks."""
    path = checkout / "cases/catalogue/lesson.toml"
    path.write_text(path.read_text() + CASE)
    assert "1 passed" in run_pytest(checkout, "suites", "-k", "lesson-of-a-newcomer")
    # A mistake in it is one line, with its place.
    edit(path, '"arange"', '"range"')
    out = run_pytest(checkout, "suites", "-k", "lesson-of-a-newcomer", code=2)
    assert 'case "lesson-of-a-newcomer": inputs.x.values: found' in out
    assert "load.py" not in out


def test_an_op(checkout: Path) -> None:
    """It means the same in NumPy and in both frameworks, and its sample runs in both."""
    edit(checkout / "cases/ops/pointwise.py", '    _plain("negative"',
         '    _plain("cube", lambda x: x**3, grads=(0,)),\n    _plain("negative"')  # fmt: skip
    edit(checkout / "adapters/torch_dtensor/op_table.py", '    "negative": "torch.neg({x})",\n',
         '    "negative": "torch.neg({x})",\n    "cube": "torch.pow({x}, 3)",\n')  # fmt: skip
    edit(checkout / "adapters/jax_xla/op_table.py", '    "left_shift": "',
         '    "cube": "jnp.power({x}, 3)",\n    "left_shift": "')  # fmt: skip
    edit(checkout / "cases/catalogue/samples.py", '_all("negative abs', '_all("cube negative abs')
    assert "passed" in run_pytest(checkout, "tests/test_meanings.py", *TABLE, "-k", "cube")
    out = run_pytest(checkout, "suites/test_operators.py", "-k", "cube-x4-s0 or cube-x4-s1")
    assert "passed" in out


def test_an_aspect(checkout: Path) -> None:
    """It is asked of every case, and catches its planted mistake."""
    edit(checkout / "cases/ledger.py", '"dry run", "record",\n', '"dry run", "record", "bounds",\n')
    edit(checkout / "suites/aspects.py", "\n\nTENSOR_ASPECTS: tuple", ASPECT)
    edit(checkout / "suites/aspects.py", '    TensorAspect("shards",', ROW)
    edit(checkout / "tests/mistakes.py", "\n_MISTAKES: tuple", MISTAKE)
    edit(checkout / "tests/mistakes.py", '    ("axes swapped"', MISTAKE_ROW)
    found = ("tests/test_discrimination.py", "-k", "lesson or shards")
    assert "passed" in run_pytest(checkout, *found)
    # An aspect that sees nothing is noticed.
    edit(checkout / "suites/aspects.py", "one > most for one", "False for one")
    assert "shards outside" in run_pytest(checkout, *found, "-vv", code=1)


def test_a_cause(checkout: Path) -> None:
    """One that explains nothing is found."""
    path = checkout / "cases/divergences/torch.toml"
    path.write_text(path.read_text() + CAUSE)
    pairs = ("-m", "reports.pairs")
    assert "torch-of-a-newcomer" in python(checkout, *pairs, code=1)


def test_a_release(checkout: Path) -> None:
    """A line of tox.ini is an environment that records."""
    edit(checkout / "tox.ini", RELEASE, RELEASE + RELEASE.replace("2.15.0", "2.99.0"))
    listed = python(checkout, "-m", "tox", "list", "-m", "records", "--no-desc")
    assert "py311-torch-2.99.0" in listed


def test_a_recipe(checkout: Path) -> None:
    """It trains in both frameworks, and fires what its contract says."""
    edit(checkout / "cases/recipes/__init__.py", '    RecipeKind("mlp-tp"', RECIPE)
    edit(checkout / "cases/recipes/contracts.py", '    "mlp-tp": Contract', CONTRACT)
    out = run_pytest(checkout, "suites/test_recipes.py", "-k", "mlp-along-along2")
    assert "1 passed" in out
