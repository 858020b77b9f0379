"""What does a run leave behind? The verdict lines, in a file and counted in the terminal.

Works where the items ran in this process and where they ran in those of pytest-xdist: the
lines travel with the test reports.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from adapters.protocol import Hello
from suites.observation import SEVERITIES
from suites.verdict import RECORD, Verdict

_VERDICTS = "shard_parity_verdicts"
_HELLOS = "shard_parity_hellos"


class Versions(msgspec.Struct, frozen=True):
    """The first line of a verdicts file: which releases were compared."""

    versions: dict[str, str]
    facts: dict[str, tuple[str, ...]]


def attach(report: pytest.TestReport, verdicts: list[Verdict], hellos: dict[str, Hello]) -> None:
    """Send verdicts along with a report, as data that pytest-xdist can carry."""
    setattr(report, _VERDICTS, msgspec.to_builtins(verdicts))
    setattr(report, _HELLOS, msgspec.to_builtins(hellos))


class Summary:
    """Collects what `attach` sent, over the run; a pytest plugin of the main process."""

    def __init__(self, path: Path | None):
        self.path = path
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
        """The counts, and the causes that were met."""
        if not self.verdicts:
            return
        terminalreporter.section("shard parity")
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> list[str]:
        """The summary, a line each."""
        named = [
            f"{hello.framework} {hello.release}"
            + (f" ({', '.join(hello.facts)})" if hello.facts else "")
            for hello in self.hellos.values()
        ]
        took = time.monotonic() - self.started
        heads = (*COLUMNS, "not asked")
        width = max(9, *map(len, heads))
        lines = ["   ".join([*named, f"{self.cases:,} cases", f"{took:.0f} s"]), ""]
        lines.append(f"{'subject':<23} {'cases':>7} " + " ".join(f"{h:>{width}}" for h in heads))
        worst = by_subject(self.verdicts)
        for subject, states in worst.items():
            counts = Counter(states.values())
            row = " ".join(f"{counts[head]:>{width},}" for head in heads)
            lines.append(f"{subject:<23} {len(states):>7,} {row}")
        return [*lines, "", *self._known(), *self._new()]

    def _known(self) -> list[str]:
        known = [one for one in self.verdicts if one.verdict == "known" and one.ledger]
        if not known:
            return ["known: none"]
        met = Counter(one.ledger for one in known)
        head = f"known: {len(known):,} lines by {len(met)} causes; docs/causes.md has each"
        most = [f"    {n:>6,}  {cause}" for cause, n in met.most_common(_MOST_CAUSES)]
        more = len(met) - len(most)
        return [head, *most, *([f"            and {more} more"] if more > 0 else [])]

    def _new(self) -> list[str]:
        bad = [one for one in self.verdicts if one.verdict == "divergence"]
        if not bad:
            return ["new:   none"]
        cases = len({one.case for one in bad})
        told = Counter("changed" if one.against == RECORD else one.severity or "" for one in bad)
        counts = ", ".join(f"{n:,} {what}" for what, n in told.most_common())
        named = Counter(one.ledger for one in bad if one.ledger)
        by = f"; known causes: {', '.join(f'{c} {n:,}' for c, n in named.most_common(3))}"
        return [f"new:   {counts}, in {cases:,} cases{by if named else ''}"]


# A subject's worst on a case, gravest first; "right" if it has none of these.
COLUMNS = ("right", "wrong", "refused", "route refused", "costly", "free", "documented")
_GRAVEST = (*SEVERITIES, "not asked", "right")
_MOST_CAUSES = 12


def by_subject(verdicts: Iterable[Verdict]) -> dict[str, dict[str, str]]:
    """By subject and case, the gravest that was met: a severity, "right" or "not asked"."""
    found: dict[str, dict[str, str]] = {}
    for one in verdicts:
        state: str = one.severity or "right"
        if one.aspect == "ending" and one.verdict == "not comparable" and one.severity is None:
            state = "not asked"
        cases = found.setdefault(one.subject, {})
        before = cases.get(one.case, "right")
        cases[one.case] = min(before, state, key=_GRAVEST.index)
    return found
