"""What does a run leave behind? The verdict lines, in a file and counted in the terminal.

Under pytest-xdist the lines come from other processes, along with the test reports.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from adapters.protocol import Hello
from adapters.registry import framework_of, only_executes_plans
from suites.observation import SEVERITIES
from suites.verdict import FORMAT, RECORD, Verdict

_VERDICTS = "shard_parity_verdicts"
_HELLOS = "shard_parity_hellos"


class Versions(msgspec.Struct, frozen=True):
    """The first line of a verdicts file: which releases were compared, and the file's format."""

    versions: dict[str, str]
    facts: dict[str, tuple[str, ...]]
    format: int = FORMAT


def attach(report: pytest.TestReport, verdicts: list[Verdict], hellos: dict[str, Hello]) -> None:
    """Send verdicts along with a report, as data that pytest-xdist can carry."""
    setattr(report, _VERDICTS, msgspec.to_builtins(verdicts))
    setattr(report, _HELLOS, msgspec.to_builtins(hellos))


class Summary:
    """Collects what `attach` sent during the run; a pytest plugin of the main process.

    ``own``: whether the cases are a user's own.
    """

    def __init__(self, path: Path | None, own: bool = False):
        self.path = path
        self.own = own
        self.started = time.monotonic()
        self.verdicts: list[Verdict] = []
        self.hellos: dict[str, Hello] = {}
        self.cases = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the verdicts of a finished item."""
        sent = getattr(report, _VERDICTS, None)
        if sent is None:
            return
        self.cases += 1
        self.verdicts += msgspec.convert(sent, list[Verdict])
        self.hellos |= msgspec.convert(getattr(report, _HELLOS), dict[str, Hello])

    def pytest_sessionfinish(self) -> None:
        """Write the verdicts file, if one was asked for."""
        if self.path is None:
            return
        head = Versions(
            {name: hello.release for name, hello in self.hellos.items()},
            {name: hello.facts for name, hello in self.hellos.items()},
        )
        rows = sorted(self.verdicts, key=lambda v: (v.case, v.subject))
        encode = msgspec.json.Encoder().encode
        self.path.write_bytes(b"".join(encode(row) + b"\n" for row in (head, *rows)))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the counts, and the causes that were met."""
        if not self.verdicts:
            return
        terminalreporter.section("shard parity")
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> list[str]:
        """The summary, a line each."""
        took = time.monotonic() - self.started
        cases = "1 case" if self.cases == 1 else f"{self.cases:,} cases"
        head = [*map(_release, self.hellos.values()), f"{cases}   {took:.0f} s"]
        lines = [*_wrap(head, "   "), "", *_table(worst_by_subject(self.verdicts)), ""]
        lines += [*self._known(), *self._new()]
        for more in (self._not_pinned, self._not_asked, self._told) if self.own else ():
            lines += _truncate_lines(more(), MOST_LINES - len(lines))
        return lines

    def _known(self) -> list[str]:
        """The causes that excused something, the most frequent first, a few on a line."""
        known = [one for one in self.verdicts if one.verdict == "known" and one.ledger]
        if not known:
            return [] if self.own else ["known: none"]
        met = Counter(one.ledger for one in known)
        noun = "1 cause" if len(met) == 1 else f"{len(met):,} causes"
        lines = "1 line" if len(known) == 1 else f"{len(known):,} lines"
        named = _lines_that_fit([f"{n:,} {cause}" for cause, n in met.most_common()], _MOST_CAUSES)
        if self.own:
            return [f"excused: {lines} by {noun} of --ledger", *named]
        return [f"known: {lines} by {noun}; docs/causes.md has each", *named]

    def _new(self) -> list[str]:
        """What is neither known nor free: how grave, in how many cases, by which known causes."""
        bad = [one for one in self.verdicts if one.verdict == "divergence"]
        head = "found:" if self.own else "new:  "
        if not bad:
            return [f"{head} nothing" if self.own else f"{head} none"]
        cases = len({one.case for one in bad})
        told = Counter("changed" if one.against == RECORD else one.severity or "" for one in bad)
        counts = ", ".join(f"{n:,} {what}" for what, n in told.most_common())
        noun = "line" if len(bad) == 1 else "lines"
        lines = [f"{head} {counts} {noun} in {cases:,} case{'' if cases == 1 else 's'}"]
        # The project's ledger names causes in a user's own cases. It excuses nothing there.
        named = Counter(one.ledger for one in bad if one.ledger)
        if named:
            lines.append("       the project's ledger names these causes, and excuses none here:")
            lines += _lines_that_fit(
                [f"{n:,} {cause}" for cause, n in named.most_common()], _MOST_NEW
            )
        return lines

    def _not_pinned(self) -> list[str]:
        """The cases that no record of ``--baseline`` holds, so that nothing was compared."""
        found: dict[str, list[str]] = {}
        for one in self.verdicts:
            if one.aspect == "record" and one.verdict == "not comparable":
                subjects = found.setdefault(one.case, [])
                if one.subject not in subjects:
                    subjects.append(one.subject)
        return [
            _truncate(f"not pinned: {case}, {', '.join(subjects)}: {_NO_RECORD}")
            for case, subjects in found.items()
        ]

    def _not_asked(self) -> list[str]:
        """For a user's own cases, the frameworks that could not be asked on any route."""
        by: dict[tuple[str, str], list[Verdict]] = {}
        for one in self.verdicts:
            if one.aspect == "ending":
                by.setdefault((one.case, framework_of(one.subject)), []).append(one)
        return [
            _truncate(f"not asked: {name} of {case}: {ends[0].why}")
            for (case, name), ends in by.items()
            if all(_is_not_asked(one) for one in ends)
        ]

    def _told(self) -> list[str]:
        """What differs in a user's own cases and is not wrong, a line each."""
        return [
            _truncate(f"told: {one.case}, {one.subject} at {one.step or 'the whole program'}:"
                   f" {one.severity}: {_describe(one)}")
            for one in self.verdicts
            if one.severity not in (None, "wrong", "refused")
        ]  # fmt: skip


_NO_RECORD = "no record of --baseline holds this question"


def _describe(one: Verdict) -> str:
    """What a line found, and what was wanted if it says so."""
    return f"{one.got}, not {one.wanted}" if one.wanted else one.got or one.why


def _truncate_lines(lines: list[str], most: int) -> list[str]:
    """The first lines, and how many more there are, on no more lines than ``most``."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"and {len(lines) - most + 1} more; --verdicts has all"][:most]


# The summary has to fit into a terminal of ordinary size.
MOST_LINES, MOST_COLUMNS = 25, 100
_MOST_CAUSES, _MOST_NEW = 5, 3
_COLUMNS = ("right", "wrong", "refused", "route refused", "costly", "free", "documented",
            "not asked")  # fmt: skip


def _release(hello: Hello) -> str:
    facts = f" ({', '.join(hello.facts)})" if hello.facts else ""
    return f"{hello.framework} {hello.release}{facts}"


def _table(states: dict[str, dict[str, str]]) -> list[str]:
    """A row for each subject, with a column for each outcome that some subject has.

    A route that only executes plans has no row if it was asked for none.
    """
    counts = {
        subject: Counter(cases.values())
        for subject, cases in states.items()
        if not (only_executes_plans(subject) and {*cases.values()} == {"not asked"})
    }
    heads = [head for head in _COLUMNS if head == "right" or any(c[head] for c in counts.values())]
    lines = [f"{'subject':<22} {'cases':>7}" + "".join(f"  {head:>7}" for head in heads)]
    for subject, counted in counts.items():
        row = "".join(f"  {counted[head]:>{max(7, len(head))},}" for head in heads)
        lines.append(f"{subject:<22} {sum(counted.values()):>7,}{row}")
    return lines


def _lines_that_fit(texts: list[str], most: int) -> list[str]:
    """As many of the texts as fit on ``most`` lines, and how many there are in addition."""
    shown = len(texts)
    while len(lines := _wrap(texts[:shown], "   ", "       ")) > most:
        shown -= 1
    return lines if shown == len(texts) else [*lines, f"       and {len(texts) - shown:,} more"]


def _wrap(parts: list[str], gap: str, indent: str = "") -> list[str]:
    """Parts on as few lines as possible; a part is broken only if it is longer than a line."""
    lines: list[str] = []
    for part in parts:
        joined = f"{lines[-1]}{gap}{part}" if lines else ""
        if lines and len(joined) <= MOST_COLUMNS:
            lines[-1] = joined
        else:
            lines.append(_truncate(indent + part))
    return lines


def _truncate(line: str) -> str:
    return line if len(line) <= MOST_COLUMNS else line[: MOST_COLUMNS - 2] + " …"


def _is_not_asked(one: Verdict) -> bool:
    """Whether the line says that a subject could not be asked."""
    return one.aspect == "ending" and one.verdict == "not comparable" and one.severity is None


# A subject's outcome on a case is the gravest of these; "right" if it has none.
_GRAVEST = (*SEVERITIES, "not asked", "right")


def worst_by_subject(verdicts: Iterable[Verdict]) -> dict[str, dict[str, str]]:
    """By subject and case, the gravest that was met: a severity, "right" or "not asked"."""
    found: dict[str, dict[str, str]] = {}
    for one in verdicts:
        state: str = one.severity or "right"
        if _is_not_asked(one):
            state = "not asked"
        cases = found.setdefault(one.subject, {})
        before = cases.get(one.case, "right")
        cases[one.case] = min(before, state, key=_GRAVEST.index)
    return found
