"""Every malformed file is refused with one line that names file, case, key, found and wanted.

Each row changes a file that loads and gives the whole line that follows the file's name.
"""

from __future__ import annotations

# ruff: noqa: E501
# Lines as they are printed.
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cases.errors import BadInput
from cases.ledger import load_ledger
from cases.load import load
from tests.bad_cases import CASE, CASES
from tests.bad_meshes import MESHES
from tests.bad_recipes import RECIPES

GOOD = """
[[case]]
id = "a"
mesh = { x = 4 }
inputs.x = { shape = [8, 2], placements = ["S(0)"] }
"""
JSON = """
{"id": "a", "mesh": {"x": 4}, "inputs": {"x": {"shape": [8], "placements": ["S(0)"]}}}
"""

# Whole files: name, content (None for no file at all), and the line after the file's name.
FILES: dict[str, tuple[str, bytes | None, str]] = {
    "no such file": ("a.toml", None, "found no such file or directory, wanted a readable file"),
    "another suffix": (
        "a.yaml",
        b"",
        "found suffix '.yaml', wanted .toml or .json, or a folder of them",
    ),
    "empty TOML": ("a.toml", b"", "found no cases, wanted at least one"),
    "TOML of comments": ("a.toml", b"# nothing yet\n", "found no cases, wanted at least one"),
    "one table, not several": (
        "a.toml",
        b"[case]\nid = 'a'\n",
        "case: found a table, wanted tables, each [[case]]",
    ),
    "case as a list of words": ("a.toml", b"case = ['a']\n", "case[0]: found 'a', wanted a table"),
    "unknown table": (
        "a.toml",
        b"[[cases]]\nid = 'a'\n",
        "found key 'cases', wanted a known key: case",
    ),
    "not TOML": (
        "a.toml",
        b"[[case]]\nid = 'a'\nmesh = { x = }\n",
        "found Invalid value at line 3, column 14, wanted TOML",
    ),
    "TOML cut short": (
        "a.toml",
        b"[[case]]\nid = 'a'\nprogram = [",
        "found Invalid value at line 3, wanted TOML",
    ),
    "key twice in TOML": (
        "a.toml",
        b"[[case]]\nid = 'a'\nid = 'b'\n",
        "found Cannot overwrite a value at line 3, column 9, wanted TOML",
    ),
    "TOML nested too deeply": (
        "a.toml",
        b"case = " + b"[" * 5000,
        "found lists nested too deeply to read, wanted TOML",
    ),
    "integer of 5000 digits": (
        "a.toml",
        b"case = " + b"1" * 5000,
        "found an integer of too many digits at line 1, wanted TOML",
    ),
    "not UTF-8": ("a.toml", b"# x\nid = '\xff'\n", "found byte 0xff on line 2, wanted UTF-8"),
    "too large": (
        "a.toml",
        b"#" * (16 * 2**20 + 1),
        "found more than 16,777,216 bytes, wanted at most 16,777,216",
    ),
    "seen in TOML": (
        "a.toml",
        GOOD.encode() + b"seen = {}\n",
        "case \"a\": found key 'seen', wanted a known key, the nearest being 'sufficient'",
    ),
    "id twice": (
        "a.toml",
        GOOD.encode() * 2,
        'case "a": id: found an id that a.toml has already, wanted a unique id',
    ),
    "ids that read alike": (
        "a.toml",
        (GOOD + GOOD.replace('"a"', '"A"')).encode(),
        "case \"A\": id: found an id with the test id 'a', like 'a' of a.toml, wanted a unique test id",
    ),
    "empty JSON": ("a.json", b"", "found Expecting value at line 1, column 1, wanted JSON"),
    "JSON without cases": ("a.json", b"[]", "found no cases, wanted at least one"),
    "JSON of one case": ("a.json", JSON.encode(), "found a table, wanted a list of cases"),
    "JSON of words": ("a.json", b'["a"]', "[0]: found 'a', wanted a table"),
    "JSON cut short": (
        "a.json",
        b'[{"id": "a",\n "mesh": {"x"',
        "found Expecting ':' delimiter at line 2, column 14, wanted JSON",
    ),
    "JSON nested too deeply": (
        "a.json",
        b"[" * 100_000,
        "found lists nested too deeply to read, wanted JSON",
    ),
    "integer of 5000 digits in JSON": (
        "a.json",
        b"[\n" + b"1" * 5000 + b"]",
        "found an integer of too many digits at line 2, wanted JSON",
    ),
    "key twice in JSON": (
        "a.json",
        b'[{"id": "a", "id": "b"}]',
        "found key 'id' twice in one object, wanted each key once",
    ),
    "NaN as a size in JSON": (
        "a.json",
        f"[{JSON}]".replace("[8]", "[NaN]").encode(),
        'case "a": inputs.x.shape[0]: found nan, wanted an integer of at least 0',
    ),
    "1e999 as a size in JSON": (
        "a.json",
        f"[{JSON}]".replace("[8]", "[1e999]").encode(),
        'case "a": inputs.x.shape[0]: found inf, wanted an integer of at least 0',
    ),
    "half a character in JSON": (
        "a.json",
        f"[{JSON}]".replace('"a"', r'"\ud800"').encode(),
        "[0].id: found '\\ud800', wanted a string of whole characters",
    ),
    "unknown key in JSON": (
        "a.json",
        f"[{JSON}]".replace('"mesh"', '"mash"').encode(),
        "case \"a\": found key 'mash', wanted a known key, the nearest being 'mesh'",
    ),
    "id twice in JSON": (
        "a.json",
        f"[{JSON}, {JSON}]".encode(),
        'case "a": id: found an id that a.json has already, wanted a unique id',
    ),
}

# A cause that loads; a row replaces keys, or takes them away with None.
CAUSE: dict[str, str | None] = {
    "id": '"a"',
    "subject": '"torch"',
    "observed": '"refused"',
    "message": '"not supported"',
    "why": '"Because."',
}
SUBJECTS = ("torch", "jax/jit")

CAUSES: dict[str, tuple[dict[str, str | None], str]] = {
    "no id": ({"id": None}, "cause[0]: found no id, wanted id, a string"),
    "id in capitals": (
        {"id": '"A"'},
        "cause[0].id: found 'A', wanted 1 to 120 of a-z 0-9 . _ -",
    ),
    "no subject": (
        {"subject": None},
        'cause "a": found no subject, wanted all of id, subject, observed, why',
    ),
    "unknown aspect": (
        {"aspect": '"values"'},
        "cause \"a\": aspect: found 'values', wanted an aspect, the nearest being 'soundness'",
    ),
    "unknown subject": (
        {"subject": '"jaxx"'},
        "cause \"a\": subject: found 'jaxx', wanted a subject or a framework: torch, jax/jit, jax",
    ),
    "unknown key": (
        {"versions": '">=2"'},
        "cause \"a\": found key 'versions', wanted a known key, the nearest being 'relation'",
    ),
    "cases that name all": (
        {"cases": "{}"},
        'cause "a": cases: found an empty table, wanted at least one of step, only, recipe, context, plan, axes, devices, ascending, minor_first, dtype, uneven, irregular, indivisible, empty, newly_partial, swaps_partial, partial, several_meshes, repeated, number, random',
    ),
    "cases by their ids": (
        {"cases": '{ id = "b-*" }'},
        "cause \"a\": cases: found key 'id', wanted a known key, the nearest being 'indivisible'",
    ),
    "cases as a string": ({"cases": '"b-*"'}, "cause \"a\": cases: found 'b-*', wanted a table"),
    "no step": (
        {"cases": "{ step = [] }"},
        'cause "a": cases.step: found an empty list, wanted at least one string',
    ),
    "step as a number": (
        {"cases": "{ step = [1] }"},
        'cause "a": cases.step[0]: found 1, wanted a string',
    ),
    "axes 0": (
        {"cases": "{ axes = 0 }"},
        'cause "a": cases.axes: found 0, wanted an integer of at least 1',
    ),
    "uneven as a word": (
        {"cases": '{ uneven = "yes" }'},
        "cause \"a\": cases.uneven: found 'yes', wanted true or false",
    ),
    "unknown dtype": (
        {"cases": '{ dtype = "float" }'},
        "cause \"a\": cases.dtype: found 'float', wanted a known dtype, the nearest being 'float64'",
    ),
    "unknown reduction": (
        {"cases": '{ partial = "med" }'},
        "cause \"a\": cases.partial: found 'med', wanted a reduction: sum, avg, max, min, product",
    ),
    "a plan of what is none": (
        {"cases": '{ plan = "gathers" }'},
        'cause "a": cases.plan: found a kind of plan, wanted none, or observed = "other plan"',
    ),
    "unknown observation": (
        {"observed": '"wrong values"'},
        "cause \"a\": observed: found 'wrong values', wanted a known observation, the nearest being 'wrong value'",
    ),
    "refusal without a message": (
        {"message": None},
        'cause "a": found no message, wanted message, a pattern of what the framework says',
    ),
    "message that fits all": (
        {"message": '".*"'},
        "cause \"a\": message: found '.*', which fits every message, wanted one that some messages do not fit",
    ),
    "message that is no pattern": (
        {"message": '"("'},
        "cause \"a\": message: found '(' (missing ), unterminated subpattern at position 0), wanted a regular expression",
    ),
    "message of a wrong value": (
        {"observed": '"wrong value"', "relation": '"NaN"'},
        "cause \"a\": message: found 'not supported', wanted none: only a refusal, a hang, a crash or a dry run that differs has a message",
    ),
    "wrong value without a relation": (
        {"observed": '"wrong value"', "message": None},
        'cause "a": found no relation, wanted relation, one or more of times a number, plus a number, NaN, elements permuted, zeros, one addend, operand unchanged, another shape, some elements, all elements',
    ),
    "relation of a refusal": (
        {"relation": '"NaN"'},
        'cause "a": relation: found a relation, wanted none: only a wrong value has a relation',
    ),
    "no reason": (
        {"why": '"  "'},
        'cause "a": why: found an empty string, wanted the reason, in a sentence or two',
    ),
    "link that is none": (
        {"link": '"pytorch#193224"'},
        "cause \"a\": link: found 'pytorch#193224', wanted a link with http:// or https://",
    ),
    "day that is none": (
        {"unreported": '"lately"'},
        "cause \"a\": unreported: found 'lately', wanted the day of the search, such as 2026-11-30",
    ),
    "a link and a day": (
        {"unreported": '"2026-11-30"', "link": '"https://github.com/pytorch/pytorch"'},
        'cause "a": found link and unreported, wanted one of the two',
    ),
}

LEDGERS: dict[str, tuple[bytes, str]] = {
    "not TOML": (
        b"[[cause]\n",
        "found Expected ']]' at the end of an array declaration at line 1, column 8, wanted TOML",
    ),
    "unknown table": (
        b"[[divergence]]\n",
        "found key 'divergence', wanted a known key: cause, documented",
    ),
    "one table, not several": (
        b"[cause]\n",
        "cause: found a table, wanted tables, each [[cause]]",
    ),
    "cause as a word": (b"cause = ['a']\n", "cause[0]: found 'a', wanted a table"),
    "documented without a link": (
        b'[[documented]]\nid = "a"\nsubject = "torch"\nobserved = "hung"\nwhy = "So."\n',
        'cause "a": found no link, wanted link, to what documents it',
    ),
    "not UTF-8": (b"\xfe\n", "found byte 0xfe on line 1, wanted UTF-8"),
}


def _toml(base: dict[str, str | None], changes: dict[str, str | None], head: str) -> str:
    lines = [f"{key} = {value}" for key, value in (base | changes).items() if value is not None]
    return "\n".join([head, *lines, ""])


def _refusal(of: Callable[[Path], object], file: Path) -> str:
    """The line that a file is refused with, without the file's name."""
    with pytest.raises(BadInput) as refused:
        of(file)
    line = str(refused.value)
    assert line.startswith(f"{file}: ")
    assert "\n" not in line
    assert line == str(pickle.loads(pickle.dumps(refused.value)))
    # NumPy's own words differ between its releases.
    return re.sub(
        r" \(NumPy: .+\)$", "", line.removeprefix(f"{file}: ").replace(str(file), file.name)
    )


def _ledger(file: Path) -> object:
    return load_ledger(file, SUBJECTS)


def test_what_the_rows_change_is_itself_accepted(tmp_path: Path) -> None:
    """Each row fails for what it changes: unchanged, everything loads."""
    file = tmp_path / "good.toml"
    for text in (_toml(CASE, {}, "[[case]]"), GOOD):
        file.write_text(text)
        assert len(load(file)) == 1
    file.with_suffix(".json").write_text(f"[{JSON}]")
    assert len(load(file.with_suffix(".json"))) == 1
    file.write_text(_toml(CAUSE, {}, "[[cause]]"))
    assert len(load_ledger(file, SUBJECTS)) == 1


@pytest.mark.parametrize("row", [*CASES, *MESHES, *RECIPES])
def test_a_bad_case_is_refused_with_one_line(row: str, tmp_path: Path) -> None:
    """A bad case is refused with one line: case, key, found, wanted."""
    changes, line = (CASES | MESHES | RECIPES)[row]
    file = tmp_path / "bad.toml"
    file.write_text(_toml(CASE, changes, "[[case]]"))
    assert _refusal(load, file) == line


@pytest.mark.parametrize("row", FILES)
def test_a_bad_file_is_refused_with_one_line(row: str, tmp_path: Path) -> None:
    """A file that cannot be read as cases is refused with one line, with the place in it."""
    name, content, line = FILES[row]
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    assert _refusal(load, file) == line


@pytest.mark.parametrize("row", CAUSES)
def test_a_bad_cause_is_refused_with_one_line(row: str, tmp_path: Path) -> None:
    """A bad cause of a ledger is refused with one line: cause, key, found, wanted."""
    changes, line = CAUSES[row]
    file = tmp_path / "bad.toml"
    file.write_text(_toml(CAUSE, changes, "[[cause]]"))
    assert _refusal(_ledger, file) == line


@pytest.mark.parametrize("row", LEDGERS)
def test_a_bad_ledger_is_refused_with_one_line(row: str, tmp_path: Path) -> None:
    """A file that cannot be read as a ledger is refused with one line."""
    content, line = LEDGERS[row]
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    assert _refusal(_ledger, file) == line


def test_a_cause_twice_is_refused_with_one_line(tmp_path: Path) -> None:
    """Two causes of a ledger with one id are refused."""
    file = tmp_path / "bad.toml"
    file.write_text(_toml(CAUSE, {}, "[[cause]]") * 2)
    line = 'cause "a": id: found an id that bad.toml has already, wanted a unique id'
    assert _refusal(_ledger, file) == line


def test_what_is_no_file_is_refused_with_one_line(tmp_path: Path) -> None:
    """Folders without cases or causes, and pipes, are refused, and nothing waits."""
    line = "found no .toml or .json file, wanted at least one"
    assert _refusal(load, tmp_path) == line
    assert _refusal(_ledger, tmp_path) == "found no .toml file, wanted at least one"
    os.mkfifo(tmp_path / "pipe.toml")
    line = "found something that is not a regular file, wanted a file"
    assert _refusal(load, tmp_path / "pipe.toml") == line


def test_an_id_in_two_files_is_refused_with_one_line(tmp_path: Path) -> None:
    """An id that two files of a folder have is refused in the second, naming the first."""
    for name in ("one.toml", "two.toml"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(BadInput) as refused:
        load(tmp_path)
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    assert str(refused.value) == (
        f'{two}: case "a": id: found an id that {one} has already, wanted a unique id'
    )


def test_a_line_stays_one_line_whatever_the_file_says(tmp_path: Path) -> None:
    """Line ends and control characters of a file do not reach the line as they are."""
    file = tmp_path / "bad.toml"
    file.write_text(_toml(CASE, {r'"a\nb\u001b"': "1"}, "[[case]]"))
    assert _refusal(load, file).startswith(
        r"""case "a": found key 'a\nb\x1b', wanted a known key"""
    )


def test_a_line_stays_one_line_whatever_a_file_is_called(tmp_path: Path) -> None:
    """Nor do those of a file's name."""
    with pytest.raises(BadInput) as refused:
        load(tmp_path / "two\nlines.toml")
    assert str(refused.value).endswith(
        r"two\nlines.toml: found no such file or directory, wanted a readable file"
    )


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    """Names too long, or with a NUL, are refused like those of no file."""
    for name, found in (("a" * 300, "file name too long"), ("a\0b", "a NUL in its name")):
        with pytest.raises(BadInput) as refused:
            load(tmp_path / f"{name}.toml")
        assert refused.value.found == found


# Records that are cut short or of another version are refused in the same way: test_record.
