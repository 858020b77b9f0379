"""``python -m reports pages`` writes the generated pages in docs/, ``drift`` the two about drift.

`reports.pairs` writes docs/causes.md, since that takes the records of all releases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cases.errors import BadInput
from reports import (
    changes,
    dry_run,
    insensitive,
    operators,
    parallel_dims,
    public,
    randomness,
    recipes,
    schemas,
    vocabulary,
)
from reports.drift import case_history, pages
from reports.drift.finding_listing import UnknownId, list_finding
from reports.drift.release_history import catalogue_by_id, committed_histories
from suites.sources import RECORDS

PAGES = {
    module.PAGE: module.page
    for module in (
        changes, dry_run, insensitive, operators, parallel_dims, public, randomness, recipes,
        vocabulary,
    )
}  # fmt: skip
PAGES |= schemas.PAGES


def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or 2 with one line of what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m reports", description="Pages from records.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("pages", help="write the pages about the committed records, and schemas")
    drift = commands.add_parser(
        "drift", help="what changed from release to release: docs/drift.md and docs/drift.html"
    )
    one = drift.add_mutually_exclusive_group()
    one.add_argument("--case", metavar="ID", help="print one case through all releases")
    one.add_argument("--finding", metavar="ID", help="print all cases of one finding")
    given = parser.parse_args(arguments)
    try:
        lines = _write_pages() if given.command == "pages" else _drift(given.case, given.finding)
    except (BadInput, UnknownId) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _write_pages() -> list[str]:
    for path, page in PAGES.items():
        path.write_text(page())
    return list(map(str, PAGES))


def _drift(case: str | None, finding: str | None) -> list[str]:
    known = catalogue_by_id()
    if case is not None:
        return case_history.format_history(RECORDS, case_history.find_case(case, known))
    if finding is not None:
        return list_finding(finding, committed_histories(), known)
    for path, page in ((pages.MARKDOWN, pages.markdown), (pages.HTML, pages.html)):
        path.write_text(page(committed_histories(), known))
    return [str(pages.MARKDOWN), str(pages.HTML)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
