"""Does a dry run report what a run with data does? And what do large meshes cost?

``python -m reports.dry_run VERDICTS`` reads the verdicts of ``pytest --dry-run
--verdicts=VERDICTS``, and stores their outcomes in `records/dry-run.json`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from adapters import registry
from adapters.answer import Answer, Collective, format_end
from adapters.registry import only_executes_plans
from cases.catalogue import family
from cases.ledger import Cause
from cases.model import slug
from cases.notation import format_both_notations
from reports.formatting import first_few, format_axes
from reports.judged_catalogue import format_frameworks, ledger
from reports.tell import recorded_answers
from reports.templates import DOCS, code, render, store
from suites.sources import RECORDS
from suites.verdict import Verdict
from suites.wording import format_collectives

PAGE = DOCS / "dry-run.md"
STORED = RECORDS / "dry-run.json"

# A reason names at most so many ids of cases, and counts the others.
_MAX_IDS = 40


class Agreement(msgspec.Struct, frozen=True):
    """How the dry runs of one run compared with the records of the same releases.

    ``agree``: how many cases, by subject. ``beyond``: ids of cases in which nothing was compared,
    by subject and reason. ``known``: ids by subject and cause. ``differ``: ids by subject.
    """

    versions: dict[str, str]
    agree: dict[str, int]
    beyond: dict[str, dict[str, list[str]]]
    known: dict[str, dict[str, list[str]]]
    differ: dict[str, list[str]]


def read_agreement(path: Path) -> Agreement:
    """The outcomes of the dry runs in a file of verdicts."""
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
    """The outcomes that are stored."""
    return msgspec.json.decode(STORED.read_bytes(), type=Agreement)


def page() -> str:
    """The page, in Markdown."""
    found = stored_agreement()
    by_id = {cause.id: cause for cause in ledger()}
    known = {
        subject: {_describe_cause(by_id[id]): ids for id, ids in causes.items()}
        for subject, causes in found.known.items()
    }
    sections = [("Beyond a dry run", _reasons(found.beyond)), ("Known", _reasons(known))]
    return render(
        PAGE.name,
        versions=" and ".join(f"{name} {release}" for name, release in found.versions.items()),
        counts=_counts(found),
        sections=[(title, reasons) for title, reasons in sections if reasons],
        frameworks=format_frameworks(),
        large=_large(),
    )


def _describe_cause(cause: Cause) -> str:
    link = cause.link or f"No public report was found on {cause.unreported}."
    return f"`{cause.id}`: {cause.why} {link}"


def _order(subjects: Iterable[str]) -> list[str]:
    return sorted(subjects, key=registry.subjects().index)


def _counts(found: Agreement) -> list[tuple[str, ...]]:
    """By subject, how many cases agree, are beyond a dry run, are known, and differ."""
    rows = []
    for subject in _order({*found.agree, *found.beyond, *found.known, *found.differ}):
        counts = (
            found.agree.get(subject, 0),
            sum(map(len, found.beyond.get(subject, {}).values())),
            sum(map(len, found.known.get(subject, {}).values())),
            len(found.differ.get(subject, [])),
        )
        rows.append((subject, *(f"{count:,}" for count in counts)))
    return rows


def _reasons(by_subject: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, list[str]]:
    """By reason, how many cases of each subject have it, and their ids."""
    found: dict[str, list[str]] = {}
    for subject in _order(by_subject):
        for reason, ids in by_subject[subject].items():
            shown = first_few(map(code, ids), _MAX_IDS)
            found.setdefault(reason, []).append(f"{subject} {len(ids)}: {shown}")
    return found


def _large() -> list[dict[str, object]]:
    """The cases that have dry runs only: their inputs, and what each subject fires."""
    return [
        {
            "id": case.id,
            "notes": case.notes,
            "mesh": format_axes(case.question.mesh),
            "inputs": [
                f"{code(given.name)}: {given.dtype} {list(given.shape)},"
                f" {format_both_notations(given.layout, case.question.mesh)}"
                for given in case.question.inputs
            ],
            "rows": [
                (subject, _format_program(answer), _mib(answer))
                for subject, answer in recorded_answers(case).items()
                if not only_executes_plans(subject)
            ],
        }
        for case in family("dry_runs")
    ]


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
    texts = (f"{format_collectives([one])} of {one.bytes / 2**20:,.3g} MiB" for one in fired)
    return ", ".join(texts) or "none"


def _mib(answer: Answer) -> str:
    return "" if answer.peak is None else f"{answer.peak / 2**20:,.0f}"


if __name__ == "__main__":
    store(read_agreement(Path(sys.argv[1])), STORED)
