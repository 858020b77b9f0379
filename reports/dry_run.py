"""Does a dry run say what a run with data does? Over the catalogue; and what large meshes cost.

``python -m reports.dry_run`` writes `docs/dry-run.md` from `records/dry-run.json` and the
committed records; a test checks that it is fresh. ``python -m reports.dry_run VERDICTS`` first
takes the outcomes of a run from the verdicts of ``pytest --dry-run --verdicts=VERDICTS``.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from adapters.answer import Answer, Collective, format_end
from cases.catalogue import family
from cases.model import slug
from cases.notation import format_both_notations
from reports.judged_catalogue import cause_link, format_frameworks
from reports.tell import recorded_answers
from suites.sources import RECORDS
from suites.verdict import Verdict
from suites.wording import format_collectives

PAGE = Path(__file__).resolve().parent.parent / "docs" / "dry-run.md"
STORED = RECORDS / "dry-run.json"

# Ids that are named for one reason at most; of more, how many.
_MAX_IDS = 40


class Agreement(msgspec.Struct, frozen=True):
    """How the dry runs of a run compared with the records of the very releases.

    ``agree``: subject -> how many cases. ``beyond``: subject -> reason that nothing was compared
    -> ids of cases. ``known``: subject -> cause -> ids. ``differ``: ids by subject.
    """

    versions: dict[str, str]
    agree: dict[str, int]
    beyond: dict[str, dict[str, list[str]]]
    known: dict[str, dict[str, list[str]]]
    differ: dict[str, list[str]]


def read_agreement(path: Path) -> Agreement:
    """What a file of verdicts says of dry runs beside the runs with data."""
    head, *lines = path.read_text().splitlines()
    # A case differs if anything in it does, and agrees if all of it does.
    ranks = {"divergence": 3, "known": 2, "not comparable": 1, "agree": 0}
    worst: dict[tuple[str, str], Verdict] = {}
    for line in lines:
        verdict = msgspec.json.decode(line, type=Verdict)
        if verdict.aspect != "dry run":
            continue
        key = verdict.subject, verdict.case
        if key not in worst or ranks[verdict.verdict] > ranks[worst[key].verdict]:
            worst[key] = verdict
    agree: dict[str, int] = {}
    beyond: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    known: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    differ: dict[str, list[str]] = defaultdict(list)
    for (subject, case), verdict in sorted(worst.items()):
        match verdict.verdict:
            case "agree":
                agree[subject] = agree.get(subject, 0) + 1
            case "not comparable":
                beyond[subject][verdict.why].append(slug(case))
            case "known":
                known[subject][verdict.ledger or ""].append(slug(case))
            case "divergence":
                differ[subject].append(slug(case))
    return Agreement(msgspec.json.decode(head)["versions"], agree, beyond, known, differ)


def stored_agreement() -> Agreement:
    """What the last run that was kept came to."""
    return msgspec.json.decode(STORED.read_bytes(), type=Agreement)


def page() -> str:
    """The page, in Markdown."""
    found = stored_agreement()
    named = " and ".join(f"{name} {release}" for name, release in found.versions.items())
    lines = [
        "# Dry runs",
        "",
        "Written by `python -m reports.dry_run`; do not edit.",
        "",
        "In a dry run a case has its shapes and its mesh, and no data. torch runs the same lines"
        " as ever, as one rank of a world of fake process groups, on fake tensors. JAX compiles the"
        " same programs for so many host devices, and runs none. A dry run tells layouts, shapes of"
        " shards, collectives with their bytes, and peak bytes.",
        "",
        "JAX's CPU client has more devices than it compiles for: a program of 2,048 is compiled,"
        " one of 2,049 is refused (`Multiprocess computations aren't implemented on the CPU"
        " backend`). A dry run of more is *unsupported* there.",
        "",
        "The two frameworks count peak bytes differently. torch: the storages that live after any"
        " op, with inputs and all results, and without the workspace inside an op. JAX: what XLA"
        " allots for arguments, results and temporaries; under `explicit` also what was made before"
        " and is still there.",
        "",
        f"## Dry runs beside runs with data, over the default catalogue ({named})",
        "",
        "`pytest --dry-run` runs every case without its data. It holds the answer against what the"
        " committed record of the very release says of the case with its data: how it ended, global"
        " shapes, dtypes, layouts, and collectives with their bytes, forward and backward apart: of"
        " each step, of the whole program and of materialised tensors.",
        "",
        *_table(found),
        "",
        *_reasons(found),
        "## Larger than the machine",
        "",
        f"The cases of `cases/catalogue/dry_runs.toml`, in a dry run of {format_frameworks()}. MiB are the"
        " peak of one device.",
        "",
        *_large(),
    ]
    return "\n".join(lines) + "\n"


def _subjects(found: Agreement) -> list[str]:
    names = {*found.agree, *found.beyond, *found.known, *found.differ}
    return sorted(names, key=lambda name: (name.startswith("jax"), name))


def _table(found: Agreement) -> list[str]:
    out = ["| | agree | beyond a dry run | known | differ |", "|---|---|---|---|---|"]
    for subject in _subjects(found):
        counts = (
            found.agree.get(subject, 0),
            sum(map(len, found.beyond.get(subject, {}).values())),
            sum(map(len, found.known.get(subject, {}).values())),
            len(found.differ.get(subject, [])),
        )
        out.append(f"| {subject} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    return out


def _reasons(found: Agreement) -> list[str]:
    known = {
        subject: {cause_link(cause): ids for cause, ids in causes.items()}
        for subject, causes in found.known.items()
    }
    out = []
    for title, by_subject in (("Beyond a dry run", found.beyond), ("Known", known)):
        rows: dict[str, list[str]] = {}
        for subject in _subjects(found):
            for reason, ids in by_subject.get(subject, {}).items():
                rows.setdefault(reason, []).append(f"{subject} {len(ids)}: {_first_few(ids)}")
        if rows:
            out += [f"### {title}", ""]
            for reason, cells in rows.items():
                out += [f"- {reason}", *(f"  - {cell}" for cell in cells)]
            out.append("")
    return out


def _first_few(ids: Sequence[str]) -> str:
    shown = ", ".join(f"`{one}`" for one in ids[:_MAX_IDS])
    return shown if len(ids) <= _MAX_IDS else f"{shown} and {len(ids) - _MAX_IDS:,} more"


def _large() -> list[str]:
    out = []
    for case in family("dry_runs"):
        question = case.question
        mesh = ", ".join(f"{name}={size}" for name, size in question.mesh.axes)
        out += [f"### {case.id}", "", f"{case.notes} On {mesh}:".strip(), ""]
        out += [
            f"- `{given.name}`: {given.dtype} {list(given.shape)},"
            f" {format_both_notations(given.layout, question.mesh)}"
            for given in question.inputs
        ]
        out += ["", "| | collectives | MiB |", "|---|---|---|"]
        for subject, answer in recorded_answers(case).items():
            if not subject.startswith("jax/shard_map"):
                out.append(f"| {subject} | {_format_program(answer)} | {_mib(answer)} |")
        out.append("")
    return out


def _format_program(answer: Answer) -> str:
    if answer.program is not None:
        return _format_collectives(answer.program)
    steps = [
        f"`{one.name}` {_format_collectives(one.collectives)}"
        for one in answer.seen
        if one.collectives
    ]
    return "; ".join(steps) or ("none" if answer.seen else format_end(answer.end))


def _format_collectives(fired: Iterable[Collective]) -> str:
    told = [f"{format_collectives([one])} of {one.bytes / 2**20:,.3g} MiB" for one in fired]
    return ", ".join(told) or "none"


def _mib(answer: Answer) -> str:
    return "" if answer.peak is None else f"{answer.peak / 2**20:,.0f}"


def main(arguments: Sequence[str]) -> None:
    """Write the page; with a path, keep the outcomes of that run first."""
    if arguments:
        made = msgspec.json.encode(read_agreement(Path(arguments[0])), order="sorted")
        STORED.write_bytes(msgspec.json.format(made, indent=1) + b"\n")
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
