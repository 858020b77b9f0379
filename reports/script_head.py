"""What do the scripts of both frameworks have in common? The comment on top, and their size.

Text only.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from cases.model import Case, Tolerance
from reports.array_source import WIDTH, wrap_line
from reports.faults import Fault
from suites.failure import format_mesh_step
from suites.failure import format_step as step_said
from suites.tensors import mesh_of
from suites.wording import format_reported_layout as layout_said

# Longest reason that is told whole.
_REASON = 170


def script_comment(case: Case, fault: Fault, run: str) -> list[str]:
    """Case and source; what diverges, at which step, in both notations; who knows of it.

    ``run``: the command that runs the script.
    """
    verdict = fault.verdict
    steps = {step.result: format_mesh_step(step) for step in case.question.mesh_steps}
    for step in case.question.steps:
        steps[step.result] = step_said(step, mesh_of(case, step.result))
    at = steps.get(fault.step or "", f"input {fault.step}" if fault.step else "the whole program")
    lines = [
        f"{case.id}    {case.source}".rstrip(),
        f"{verdict.subject}, {verdict.aspect} at {at}{', materialised' if fault.full else ''}: "
        f"{fault.observed}",
    ]
    if fault.seen is not None and fault.seen.layout is not None:
        reported = layout_said(fault.seen.layout, fault.mesh)
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
    lines.append(f"{run}: exits 1 while it stands, 0 once it is gone")
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
    """Of import lines, what ``body`` uses: a line less, or a name less in it."""
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


def indent_lines(lines: Sequence[str], indent: int) -> list[str]:
    """Lines indented, and broken where they are too long."""
    return [part for line in lines for part in wrap_line(line, indent)]


def allclose_arguments(allowed: Tolerance) -> str:
    """The arguments of ``allclose``."""
    return f"rtol={allowed.rtol!r}, atol={allowed.atol!r}, equal_nan=True"


def tolerance_comment(allowed: Tolerance) -> list[str]:
    """Why it is as close as that, as a comment."""
    if not allowed.rtol and not allowed.atol:
        return []
    return [f"# {_shorten(allowed.why) or 'as close as the case says'}"]
