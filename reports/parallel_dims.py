"""Which points of a training framework's meshes are tested, and how does each come out?"""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase

from cases.catalogue.parallel_dims import SOURCE
from cases.model import slug
from reports.judged_catalogue import ROUTES, JudgedCase, format_frameworks, judge_catalogue
from reports.templates import DOCS, code, render
from suites.verdict import Verdict

PAGE = DOCS / "parallel-dims.md"

# A point that was raised there, and patterns of the ids of the cases that test it.
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
    cases = [one for one in judge_catalogue() if one.case.family in _FAMILIES]
    rows = []
    for point, patterns in POINTS:
        own = [one for one in cases if any(fnmatchcase(slug(one.case.id), p) for p in patterns)]
        shown = f"{len(own)}: {', '.join(map(code, patterns))}"
        rows.append([point, shown, *(_cell(own, subject) for subject in ROUTES)])
    return render(
        PAGE.name, frameworks=format_frameworks(), source=SOURCE, subjects=[*ROUTES], rows=rows
    )


def _cell(own: list[JudgedCase], subject: str) -> str:
    states = Counter(_state(one.of(subject)) for one in own)
    # Those that agree come first, and those with nothing to compare last.
    order = ("agree", "documented", "", "diverge", "not comparable")
    shown = sorted(states, key=lambda state: (order.index(state if state in order else ""), state))
    return ", ".join(f"{states[state]} {state}" for state in shown) or "none"


def _state(verdicts: list[Verdict]) -> str:
    """How one case came out, in a word or two; a known divergence with its causes."""
    causes = sorted({v.ledger for v in verdicts if v.verdict == "known" and v.ledger})
    if causes:
        return f"known ({' and '.join(causes)})"
    if any(v.verdict == "divergence" for v in verdicts):
        return "diverge"
    if any(v.severity == "documented" for v in verdicts):
        return "documented"
    return "agree" if any(v.verdict == "agree" for v in verdicts) else "not comparable"
