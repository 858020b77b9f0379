"""Which points of a training framework's meshes are tested, and how does each come out?

``python -m reports.parallel_dims`` writes `docs/parallel-dims.md` from the catalogue and the
committed records; a test checks that it is fresh.
"""

from __future__ import annotations

import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

from cases.catalogue.parallel_dims import SOURCE
from cases.model import slug
from reports.judged_catalogue import JudgedCase, format_frameworks, judge_catalogue
from suites.verdict import Verdict

PAGE = Path(__file__).resolve().parent.parent / "docs" / "parallel-dims.md"

_SUBJECTS = ("torch", "jax/jit", "jax/explicit")

# What was raised there -> the cases that test it, by pattern.
POINTS = (
    ("every view of one world, with all derived sizes: data loading, loss, dense, sparse, storage;"
     " grid, coordinate and group of every rank along every axis", ("views-*",)),
    ("the same on more devices than the machine has", ("views-p1.r2.s4.c2.t8*", "views-p2.r1.s16*",
                                                      "views-p4*", "*-p4.r2.s4.c2.t8.e16.x1")),
    ("degrees whose product is not the world are refused", ("degrees-*",)),
    ("an axis of size 1 is legal, and a redistribute over it fires no collective", ("one-*-p1.*",)),
    ("a view obtained twice for the same axes compares equal", ("equal-*", "what-is-one-mesh")),
    ("several axes sliced from a mesh that was itself flattened or unflattened",
     ("slices-of-*",)),
    ("axes of different views concatenated", ("joined-*",)),
    ("the batch and cp axes flattened for the loss", ("loss-*",)),
    ("a fake group for a world that is never split, and for axes of size 1",
     ("fake-world", "views-*")),
    ("a dense weight by fsdp and tp", ("dense-p*", "dense-rows-*")),
    ("hybrid sharding replicates over dp_replicate", ("hybrid-p*", "hybrid-gradient-*")),
    ("an expert weight by ep over the experts and by efsdp over another dim", ("expert-*",)),
    ("a weight stored in one view and used in another", ("stored-and-used-*",)),
    ("seeds: the same numbers where parameters are replicated, others along distinct axes",
     ("distinct-*", "seed-*")),
)  # fmt: skip

_FAMILIES = ("parallel_dims", "meshes", "random")


def page() -> str:
    """The page, in Markdown."""
    lines = [
        "# Meshes of a training framework",
        "",
        "Written by `python -m reports.parallel_dims` from `cases/catalogue/parallel_dims.py` and"
        f" the records of {format_frameworks()}; do not edit.",
        "",
        f"Source of the points: {SOURCE}. Degrees are pp, dp_replicate, dp_shard, cp, tp, ep and"
        " etp; a case is named by theirs, `p1.r2.s2.c1.t2.e2.x1`. A cell counts the cases in which"
        " all that was compared agrees, and then the others. What is wrong, refused or costly is"
        " named with its cause, which [causes.md](causes.md) tells.",
        "",
        f"| point | cases | {' | '.join(_SUBJECTS)} |",
        f"|---|---|{'---|' * len(_SUBJECTS)}",
    ]
    every = [one for one in judge_catalogue() if one.case.family in _FAMILIES]
    for point, patterns in POINTS:
        own = [one for one in every if any(fnmatchcase(slug(one.case.id), p) for p in patterns)]
        cells = (_cell(own, subject) for subject in _SUBJECTS)
        lines.append(f"| {point} | {len(own)}: `{'`, `'.join(patterns)}` | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cell(own: list[JudgedCase], subject: str) -> str:
    states = Counter(_state(one.of(subject)) for one in own)
    # Those that agree come first, and those with nothing to compare last.
    order = ("agree", "documented", "", "diverge", "not comparable")
    shown = sorted(states, key=lambda state: (order.index(state if state in order else ""), state))
    return ", ".join(f"{states[state]} {state}" for state in shown) or "none"


def _state(verdicts: list[Verdict]) -> str:
    """How one case came out, in a word or two; what is known is told with its causes."""
    causes = sorted({v.ledger for v in verdicts if v.verdict == "known" and v.ledger})
    if causes:
        return f"known ({' and '.join(causes)})"
    if any(v.verdict == "divergence" for v in verdicts):
        return "diverge"
    if any(v.severity == "documented" for v in verdicts):
        return "documented"
    return "agree" if any(v.verdict == "agree" for v in verdicts) else "not comparable"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")
