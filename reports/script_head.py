"""What do the scripts of both frameworks have in common? Their comment, imports and comparisons."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from cases.model import Case, Tolerance
from reports.array_source import WIDTH, wrap_line
from reports.faults import Counts, Fault, NoScript
from suites.failure import format_mesh_step, format_step
from suites.tensors import mesh_of
from suites.wording import format_reported_layout

# A comment shortens longer reasons.
_REASON = 170
_STANDARD = tuple(
    f"import {name}"
    for name in ("base64", "collections", "os", "re", "sys", "tempfile", "time", "zlib")
)


def script_comment(case: Case, fault: Fault, run: str) -> list[str]:
    """The case and its source, what diverges at which step, and the known cause.

    ``run``: the command that runs the script.
    """
    verdict = fault.verdict
    steps = {step.result: format_mesh_step(step) for step in case.question.mesh_steps}
    for step in case.question.steps:
        steps[step.result] = format_step(step, mesh_of(case, step.result))
    at = steps.get(fault.step or "", f"input {fault.step}" if fault.step else "the whole program")
    lines = [
        f"{case.id}    {case.source}".rstrip(),
        f"{verdict.subject}, {verdict.aspect} at {at}{', materialised' if fault.full else ''}: "
        f"{fault.observed}",
    ]
    if fault.seen is not None and fault.seen.layout is not None:
        reported = format_reported_layout(fault.seen.layout, fault.mesh)
        lines[1] += f", reported as {reported}" if reported not in at else ""
    if verdict.ledger:
        lines.append(f"known as {verdict.ledger}: {_shorten(verdict.why)}")
    others = dict.fromkeys(
        f"{one.subject} {one.aspect} at {one.step or 'the program'}"
        + (f" ({one.ledger})" if one.ledger and one.ledger != verdict.ledger else "")
        for one in fault.others
    )
    if others:
        lines.append(f"also: {_shorten(', '.join(others))}")
    lines.append(f"{run}: exits 1 while the fault shows, else 0")
    return [
        text
        for line in lines
        for text in textwrap.wrap(
            line, WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False,
            break_long_words=False,
        )
    ]  # fmt: skip


def _shorten(text: str) -> str:
    return text if len(text) <= _REASON else text[:_REASON].rpartition(" ")[0] + " ..."


def used_imports(lines: Iterable[str], body: str) -> list[str]:
    """Import lines without the names that ``body`` does not use."""
    kept = []
    for line in lines:
        start, _, names = line.rpartition("import ")
        used = [one for one in names.split(", ") if _uses(one.split(" as ")[-1], body)]
        if used:
            kept.append(f"{start}import {', '.join(used)}")
    return kept


def _uses(name: str, body: str) -> bool:
    bare = re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "", body)
    return re.search(rf"(?<![\w.]){re.escape(name)}\b", bare) is not None


def standard_imports(body: str) -> str:
    """One line that imports the standard modules that ``body`` uses."""
    names = (one.removeprefix("import ") for one in used_imports(_STANDARD, body))
    return "import " + ", ".join(names)


def check_names(names: Iterable[str], reserved: Iterable[str]) -> None:
    """Whether a script can have these variables of a case.

    Raises:
        NoScript: one of them is a variable of the script itself.
    """
    if taken := sorted({*names} & {*reserved}):
        raise NoScript(f"the case has the name {taken[0]}, which the script needs")


def format_slices(ranges: Iterable[Iterable[tuple[int, int]]]) -> str:
    """The expressions of index ranges, a tuple of slices each."""
    return ", ".join(
        f"({''.join(f'slice({start}, {stop}), ' for start, stop in spans)})" for spans in ranges
    )


def count_test(check: str, forms: Sequence[Counts]) -> tuple[str, str]:
    """The expression of what is wanted, and the test of ``got``. ``forms``: the right counts."""
    if check == "total":
        return "wanted", "sum(got.values()) <= sum(wanted.values())"
    if len(forms) == 1:
        return "wanted", "got == wanted"
    return "f'{wanted}, or as it is lowered'", f"got in (wanted, *{list(forms[1:])})"


def shown_value(fault: Fault, name: str) -> str:
    """The expression of an array for people, with dtype and shape where the elements are equal."""
    elements = f"{name}.tolist()"
    return f"({name}.dtype, {name}.shape, {elements})" if fault.differs_in_shape else elements


def indent_lines(lines: Sequence[str], indent: int) -> list[str]:
    """Lines with an indent, and long ones broken."""
    return [part for line in lines for part in wrap_line(line, indent)]


def allclose_arguments(allowed: Tolerance) -> str:
    """The arguments of ``allclose``."""
    return f"rtol={allowed.rtol!r}, atol={allowed.atol!r}, equal_nan=True"


def tolerance_comment(allowed: Tolerance) -> list[str]:
    """A comment that says why this tolerance is right."""
    if not allowed.rtol and not allowed.atol:
        return []
    return [f"# {_shorten(allowed.why) or 'the tolerance of the case'}"]
