"""Is a framework's public interface written down as it is, and the same every time?"""

from __future__ import annotations

import ast
import enum
import functools
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from adapters import interface
from adapters.inspection import deprecation_of_call, format_literal, format_signature
from adapters.interface import (
    Default,
    Head,
    Interface,
    Module,
    Name,
    Printed,
    find_public_names,
    load,
)
from adapters.jax_xla import interface as jax_source
from adapters.registry import FRAMEWORKS, Framework
from adapters.release_names import NameLocation, Names
from adapters.torch_dtensor import interface as torch_source
from cases.errors import BadInput
from tests.runs import ROOT

COMMITTED = sorted((ROOT / "records").glob("*.interface.jsonl"))

# What a live release has not: flags that are gone, or not there yet.
LACKS = {
    "torch": set(),
    "jax": {
        "jax_enable_memories",
        "jax_no_collectives",
        "jax_pmap_no_rank_reduction",
        "jax_pmap_shmap_merge",
        "jax_sharding_in_types",
        "jax_spmd_mode",
        "jax_varying_axes_in_types",
    },
}


Fresh = Callable[[str], Path]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """The interface of a framework that is installed, written by a process of its own."""
    # What a user has set must not show.
    strange = {"JAX_ENABLE_X64": "1", "JAX_THREEFRY_PARTITIONABLE": "0", "PYTHONHASHSEED": "17"}

    @functools.cache
    def made(framework: str) -> Path:
        folder = tmp_path_factory.mktemp(framework)
        command = [sys.executable, "-m", "adapters.interface", framework, str(folder)]
        subprocess.run(command, cwd=ROOT, env=os.environ | strange, check=True, capture_output=True)
        (made,) = folder.iterdir()
        return made

    return made


TOY = {
    "toy/__init__.py": "",
    "toy/_real.py": """
        import enum, functools

        MISSING = object()

        class Kind(enum.Enum):
            ROUND = 1

        class Base:
            @classmethod
            def made(cls, of: int = 3): ...
            @staticmethod
            def told(it, *, loud: bool = False) -> None: ...
            def both(self): ...
            def _hidden(self): ...
            @property
            def size(self): ...

        class Thing(Base, dict):
            def __init__(self, kind: Kind = Kind.ROUND, other=MISSING): ...
            def both(self, more): ...
            def told_twice(self): ...
            told_twice.__deprecated__ = "Say it once.\\nOnce."

        class Marked:
            __deprecated__ = "Use Thing."

        class Child(Marked): ...

        def helper(f=len, g=lambda x: x): ...
        """,
    "toy/plain.py": "from toy._real import Kind, Thing as Thing, helper\n_private = helper\n",
    "toy/listed.py": "from toy._real import Child, Marked, Thing\n__all__ = ['Child', 'Marked']\n",
    "toy/own.py": "from toy._real import Thing\ndef mine(*args, **kwargs): ...\n",
    "toy/told.py": """
        import warnings
        from toy._real import Thing as _Thing, helper
        _deprecations = {
            "Old": ("toy.told.Old is deprecated; use Thing.\\nSoon.", _Thing),
            "Older": ("toy.told.Older was removed in 2; use Thing.", None),
        }
        def __getattr__(name):
            if name not in _deprecations:
                raise AttributeError(f"no {name}")
            message, value = _deprecations[name]
            if value is None:
                raise AttributeError(message)
            warnings.warn(message, DeprecationWarning)
            return value
        """,
    "toy/late.py": "import warnings\nwarnings.warn('toy.late will go', FutureWarning)\n",
    "toy/interface.py": """
        import contextlib
        from adapters.interface import Module
        from adapters.release_names import NameLocation

        NAMES = {
            "Thing": (NameLocation("2", "toy.plain.Thing"), NameLocation("1", "toy._real.Thing")),
            "size": (NameLocation("1", "toy._real.Base.size"),),
            "to come": (NameLocation("9", "toy.plain.soon"),),
        }
        MODULES = (
            Module("toy.plain", homes=("toy",)),
            Module("toy._real", names=("Thing",)),
        )
        ROOTS = ("toy",)
        def start():
            return "1.5+local"
        @contextlib.contextmanager
        def world():
            yield
        def slow():
            import warnings
            warnings.warn("helper is deprecated", UserWarning)
        def gone():
            raise AttributeError("no such thing here")
        def refused():
            raise ValueError("not <object object at 0x7f0000000000>\\nat all")
        class Shown:
            def __str__(self):
                return "shown"
            def __repr__(self):
                return object.__repr__(self)
        CALLS = {"toy.plain.helper": slow, "toy.plain.nothing": slow}
        DEFAULTS = {"one": lambda: (1, {"b", "a"}), "gone": gone, "refused": refused}
        def held():
            from toy.plain import Thing
            thing = Thing()
            thing.seen, thing._unseen, thing.both = 1, 2, 3
            return thing
        def kind():
            from toy.plain import Kind
            return Kind.ROUND
        PRINTED = {"shown": Shown, "gone": gone, "held": held, "kind": kind}
        """,
}


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A framework of a few lines that can be imported until the end of the test."""
    for name, text in TOY.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "toy":
            del sys.modules[name]


def told(*modules: Module) -> dict[str, Name]:
    """What is public in those modules, by path."""
    return {name.path: name for name in find_public_names(modules, ("toy",))}


def test_without_a_list_what_is_defined_at_home_is_public(toy: Path) -> None:
    """A module without ``__all__`` has what its package defines, and no private name."""
    names = told(Module("toy.plain", homes=("toy",)))
    assert {path for path in names if path.count(".") == 2} == {
        "toy.plain.Kind",
        "toy.plain.Thing",
        "toy.plain.helper",
    }
    assert {*told(Module("toy.own"))} == {"toy.own", "toy.own.mine"}


def test_the_list_of_a_module_is_what_is_public(toy: Path) -> None:
    """``__all__`` counts alone, where there is one."""
    assert {*told(Module("toy.listed"))} == {"toy.listed", "toy.listed.Child", "toy.listed.Marked"}


def test_names_that_are_asked_for_count_alone(toy: Path) -> None:
    """With names given, nothing else is told: a class without members, these by a dotted name."""
    asked = ("Kind", "Thing.size", "helper", "absent", "Thing.absent")
    names = told(Module("toy.plain", names=asked))
    assert {*names} == {"toy.plain.Kind", "toy.plain.Thing.size", "toy.plain.helper"}


def test_a_module_that_is_not_there_is_not_told(toy: Path) -> None:
    """What a release lacks is simply not there."""
    assert told(Module("toy.never")) == {}


def test_members_are_those_of_the_class_and_its_own_kind(toy: Path) -> None:
    """Members of bases outside the roots are left out; each is told as it is called."""
    names = told(Module("toy.plain", homes=("toy",)))
    members = {path: name for path, name in names.items() if path.startswith("toy.plain.Thing.")}
    lives = "toy._real"
    assert list(members.values()) == [
        Name("toy.plain.Thing.both", "function", "(self, more)", lives),
        Name("toy.plain.Thing.told_twice", "function", "(self)", lives, "Say it once."),
        Name("toy.plain.Thing.made", "function", "(of=3)", lives),
        Name("toy.plain.Thing.told", "function", "(it, *, loud=False)", lives),
        Name("toy.plain.Thing.size", "value", "", lives),
    ]
    assert names["toy.plain.Kind.ROUND"].kind == "value"


def test_signatures_have_no_annotation_and_no_address(toy: Path) -> None:
    """A sentinel's address, an enumerated value, a function and a lambda become Python."""
    names = told(Module("toy.plain", homes=("toy",)))
    assert names["toy.plain.Thing"].signature == "(kind=Kind.ROUND, other=object())"
    assert names["toy.plain.helper"].signature == "(f=len, g=function())"
    assert names["toy.plain.Kind"].signature == ""


def test_a_deprecated_name_keeps_its_warning(toy: Path) -> None:
    """What a module tells when a name is taken is kept, though no list of names has it."""
    names = told(Module("toy.told"))
    old = names["toy.told.Old"]
    assert (old.kind, old.lives) == ("class", "toy._real")
    assert old.warns == "toy.told.Old is deprecated; use Thing."
    gone = Name("toy.told.Older", "gone", warns="toy.told.Older was removed in 2; use Thing.")
    assert names["toy.told.Older"] == gone


def test_an_import_that_warns_is_told_of_the_module(toy: Path) -> None:
    """A module's own deprecation stands with the module."""
    assert told(Module("toy.late"))["toy.late"].warns == "toy.late will go"


def test_a_mark_of_deprecation_is_not_inherited(toy: Path) -> None:
    """A class that is marked warns, one that is derived from it does not."""
    names = told(Module("toy.listed"))
    assert names["toy.listed.Marked"].warns == "Use Thing."
    assert names["toy.listed.Child"].warns == ""


def test_a_toy_framework_is_collected_whole(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with what is used, calls that warn, defaults, what raised, prints; all in order."""
    row = Framework("toy.adapter", ("toy",), interface="toy.interface")
    monkeypatch.setitem(FRAMEWORKS, "toy", row)
    found = interface.collect("toy")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found.head == Head(interface.FORMAT, "toy", "1.5", python, len(found.facts))
    by = {fact.path if isinstance(fact, Name) else fact.what: fact for fact in found.facts}
    names = {path: fact for path, fact in by.items() if isinstance(fact, Name)}
    assert by["one"] == Default("one", "(1, {'a', 'b'})")
    assert by["refused"] == Default("refused", "raises ValueError: not <object object>")
    assert by["shown"] == Printed("shown", "shown", "<toy.interface.Shown object>")
    assert "gone" not in by
    assert "toy.plain.nothing" not in by
    assert by["toy.plain.Thing.seen"] == Name("toy.plain.Thing.seen", "value", lives="toy._real")
    # Its members are not told at this place.
    assert "toy._real.Thing.seen" not in by
    assert "toy.plain.Thing._unseen" not in by
    assert "toy.plain.Kind.value" not in by
    assert "toy.plain.Thing.keys" not in by
    assert names["toy.plain.Thing.both"].kind == "function"
    assert names["toy.plain.helper"].warns == "helper is deprecated"
    used = {path for path, fact in names.items() if fact.used}
    # Where it is in another release counts too; where it will be is not there yet.
    assert used == {"toy.plain.Thing", "toy._real.Thing", "toy._real.Base.size"}
    keys = [(type(fact).__name__, getattr(fact, "path", "")) for fact in found.facts]
    assert keys == sorted(keys)


def test_a_table_of_names_that_is_wrong_is_refused(toy: Path) -> None:
    """A place at which a release has nothing ends the collecting, and is named."""
    table: Names = {"thing": (NameLocation("1", "toy.plain.Thingy"),)}
    with pytest.raises(LookupError, match=r"toy 1\.5 has nothing there: .* thing at toy.plain.Thi"):
        list(interface.find_names_in_table(table, "toy", "1.5"))


class Colour(enum.IntEnum):
    """An enumeration whose `repr` is no Python."""

    RED = 1


class Flat:
    """Prints as a call."""

    def __repr__(self) -> str:
        return "Flat(a=1)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        ("a\nb", "'a\\nb'"),
        ((1,), "(1,)"),
        ((), "()"),
        ([object(), Colour.RED], "[object(), Colour.RED]"),
        ({"k": {2, 1}}, "{'k': {1, 2}}"),
        (set(), "set()"),
        (frozenset(), "frozenset()"),
        (frozenset("ba"), "frozenset({'a', 'b'})"),
        (float("-inf"), "float('-inf')"),
        (float("nan"), "float('nan')"),
        (dict, "dict"),
        (Flat(), "Flat(a=1)"),
        (textwrap.dedent, "dedent"),
        (functools.partial(len, ()), "partial()"),
    ],
)
def test_values_are_python_that_is_the_same_everywhere(value: object, text: str) -> None:
    """A value is an expression that depends neither on addresses nor on the order of hashes."""
    assert format_literal(value) == text


def test_what_has_no_signature_has_none() -> None:
    """Where Python cannot tell, nothing is made up; that a class takes anything says nothing."""

    class Anything:
        def __new__(cls, *args: object, **kwargs: object) -> Anything:
            return super().__new__(cls)

    assert format_signature(dict) == ""
    assert format_signature(Anything) == ""


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("f(self: a.B, dim: t.Int | None = None) -> bool\n\nMore.", "(self, dim=None)"),
        ("f(*args, **kwargs)\nOverloaded function.\n\n1. f(a)\n", ""),
        ("f(how: a.Kind = <Kind.ROUND: 1>) -> None\n", ""),
        ("Says nothing.", ""),
        ("g(a)", ""),
        (None, ""),
    ],
)
def test_what_was_made_in_c_has_its_signature_in_its_docstring(
    written: str | None, text: str
) -> None:
    """The first line of a docstring counts where it is the one signature of that name."""

    def f() -> None: ...

    f.__doc__ = written
    # As what Python cannot tell.
    f.__signature__ = "none"  # type: ignore[attr-defined]
    assert format_signature(f) == text


def test_a_class_is_called_without_its_self() -> None:
    """What is written of ``__init__`` is a call of the class, without its first parameter."""

    class Made:
        __signature__ = "none"

        def __init__(self) -> None: ...

        __init__.__doc__ = "__init__(self, *parts: object, owed: frozenset = frozenset()) -> None"

    assert format_signature(Made) == "(*parts, owed=frozenset())"


def test_a_call_that_warns_of_something_else_tells_no_deprecation() -> None:
    """Only deprecations count."""
    import warnings

    assert deprecation_of_call(lambda: warnings.warn("slow", RuntimeWarning, stacklevel=1)) == ""


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda text: text.replace('"format":1', '"format":99'), "format 99"),
        (lambda text: text.rpartition("{")[0], "1 lines"),
        (lambda text: text.replace('"what"', '"which"'), "missing required field"),
        (lambda text: "", "none"),
    ],
)
def test_a_damaged_file_is_refused(
    tmp_path: Path, change: Callable[[str], str], found: str
) -> None:
    """A file that is cut, damaged or of another format says so in one line."""
    path = tmp_path / "toy.interface.jsonl"
    facts = (Default("a", "1"), Printed("b", "c", "d"))
    whole = Interface(Head(interface.FORMAT, "toy", "1.0", "3.11", 2), facts)
    interface.write(path, whole)
    assert load(path) == whole
    path.write_text(change(path.read_text()))
    with pytest.raises(BadInput, match=found):
        load(path)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_what_is_committed_is_what_the_live_release_has(framework: str, fresh: Fresh) -> None:
    """Two processes with other hashes and another environment write the same bytes."""
    made = fresh(framework)
    committed = ROOT / "records" / made.name
    assert made.read_text().splitlines() == committed.read_text().splitlines()


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_nothing_that_is_looked_at_is_missing_unseen(framework: str, fresh: Fresh) -> None:
    """A default or print that the live release lacks is one that is known to be lacking."""
    source = {"torch": torch_source, "jax": jax_source}[framework]
    found = load(fresh(framework)).facts
    seen = {fact.what for fact in found if not isinstance(fact, Name)}
    assert {*source.DEFAULTS, *source.PRINTED} - seen == LACKS[framework]
    assert {*source.CALLS} - {fact.path for fact in found if isinstance(fact, Name)} == set()


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name)
def test_every_committed_signature_is_python(path: Path) -> None:
    """Each parses after ``def f``, and no line has an address or a path of a machine."""
    found = load(path)
    assert f"{found.head.framework}-{found.head.release}.interface.jsonl" == path.name
    assert str(Version(found.head.release)) == found.head.release
    for fact in found.facts:
        if isinstance(fact, Name) and fact.signature:
            ast.parse(f"def f{fact.signature}: ...")
    assert re.findall(r"0x[0-9a-f]{6,}|/(?:home|root|usr|tmp|work)/\S*", path.read_text()) == []
