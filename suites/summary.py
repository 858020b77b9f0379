"""What does a run leave behind? The verdict lines, in a file and counted in the terminal.

Works where the items ran in this process and where they ran in those of pytest-xdist: the
lines travel with the test reports.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from adapters.protocol import Hello
from suites.verdict import ASPECTS, OUTCOMES, Outcome, Verdict

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
        """The counts, per aspect and subject."""
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
        lines = ["   ".join([*named, f"{self.cases:,} cases", f"{took:.0f} s"]), ""]
        heads = " ".join(f"{head:>8}" for head in ("agree", "known", "diverge"))
        lines.append(f"{'aspect':<13} {'subject':<23} {heads}   not comparable")
        counts: Counter[tuple[str, str, Outcome]] = Counter()
        reasons: dict[tuple[str, str], Counter[str]] = {}
        for verdict in self.verdicts:
            counts[verdict.aspect, verdict.subject, verdict.verdict] += 1
            if verdict.verdict == "not comparable":
                reason = reasons.setdefault((verdict.aspect, verdict.subject), Counter())
                reason[_reason(verdict.why)] += 1
        subjects = list(dict.fromkeys(verdict.subject for verdict in self.verdicts))
        for aspect in ASPECTS:
            for subject in subjects:
                row = [counts[aspect, subject, outcome] for outcome in OUTCOMES]
                if any(row):
                    why = reasons.get((aspect, subject), Counter())
                    text = ", ".join(f"{reason} {n:,}" for reason, n in why.most_common(3))
                    lines.append(
                        f"{aspect:<13} {subject:<23} "
                        + " ".join(f"{n:>8,}" for n in row[:3])
                        + f"   {row[3]:,}"
                        + (f" ({text})" if text else "")
                    )
        lines += ["", self._known()]
        return lines

    def _known(self) -> str:
        known = [v.ledger for v in self.verdicts if v.verdict == "known"]
        if not known:
            return "known: none"
        return f"known: {len(set(known))} ledger entries, {len(known):,} lines, all still hold"


def _reason(why: str) -> str:
    """The head of a reason, so that reasons can be counted."""
    for head in ("refused", "unsupported", "crashed", "hung", "layouts differ"):
        if why.startswith(head):
            return head
    return why.partition(":")[0]
