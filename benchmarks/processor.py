"""Where does the processor time of the default run go? By family: each framework, and judging.

``python -m benchmarks.processor [FAMILY ...]`` runs the cases of each family with one framework at
a time, and once from the records alone. Without a family it writes the table into the README beside
this file. Each figure is what the whole machine worked meanwhile, since ranks that are killed leave
no account of their own: nothing else may run. Imports no framework. Linux only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

import msgspec

from adapters.registry import FRAMEWORKS
from benchmarks.run import ROOT, write_table
from cases.catalogue import FAMILIES, family
from suites.sources import RECORDS, pinned_releases, record_path

BEGIN, END = "<!-- processor -->\n", "<!-- end of processor -->\n"
_TICKS = os.sysconf("SC_CLK_TCK")
# Of the first line of /proc/stat (proc(5)): user, nice and system.
_WORKING = slice(1, 4)


class ProcessorTime(msgspec.Struct, frozen=True):
    """Processor seconds of a family: by framework, and of judging its recorded answers."""

    family: str
    cases: int
    frameworks: dict[str, float]
    judging: float


def measure(name: str) -> ProcessorTime:
    """The seconds of one family. What a run needs to start is in each of them."""
    recorded = {
        one: f"--{one}={record_path(RECORDS, one, release)}"
        for one, release in pinned_releases().items()
    }
    frameworks = {
        one: _worked([f"--{other}=off" for other in FRAMEWORKS if other != one], name)
        for one in FRAMEWORKS
    }
    return ProcessorTime(name, len(family(name)), frameworks, _worked([*recorded.values()], name))


def _worked(options: Sequence[str], name: str) -> float:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    before = _processor_seconds()
    # Red cases change nothing about the time.
    done = subprocess.run([*command, f"suites/test_{name}.py"], cwd=ROOT, capture_output=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout.decode()[-4000:])
    return _processor_seconds() - before


def _processor_seconds() -> float:
    with open("/proc/stat") as file:
        return sum(map(int, file.readline().split()[_WORKING])) / _TICKS


def format_table(found: Sequence[ProcessorTime]) -> Iterator[str]:
    """The lines of the table, with a line for all families."""
    heads = ["family", "cases", *FRAMEWORKS, "judging"]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    whole = ProcessorTime(
        "all",
        sum(one.cases for one in found),
        {name: sum(one.frameworks[name] for one in found) for name in FRAMEWORKS},
        sum(one.judging for one in found),
    )
    for one in (*found, whole):
        seconds = [*one.frameworks.values(), one.judging]
        yield f"| {one.family} | {one.cases:,} | {' | '.join(f'{s:.0f} s' for s in seconds)} |"


def main(names: Sequence[str]) -> None:
    """Measure these families, or all and write the table."""
    if unknown := set(names) - set(FAMILIES):
        sys.exit(f"found {', '.join(sorted(unknown))}, wanted some of {', '.join(FAMILIES)}")
    lines = [*format_table([measure(name) for name in names or FAMILIES])]
    print(*lines, sep="\n")
    if not names:
        write_table(BEGIN, lines, END)


if __name__ == "__main__":
    main(sys.argv[1:])
