"""``python -m reports drift``: write the drift pages, or tell one case or one finding of them.

Each other page has a module of its own, ``python -m reports.operators`` and so on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cases.errors import BadInput
from reports.drift import case_history, page_html, page_markdown
from reports.drift.finding_listing import UnknownId, list_finding
from reports.drift.release_history import catalogue_by_id, committed_histories
from suites.sources import RECORDS


def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or 2 with one line of what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m reports", description="Pages from records.")
    told_of = "What changed from release to release: writes docs/drift.md and docs/drift.html."
    page = parser.add_subparsers(dest="page", required=True).add_parser(
        "drift", help="what changed from release to release", description=told_of
    )
    one = page.add_mutually_exclusive_group()
    one.add_argument("--case", metavar="ID", help="tell one case through all releases")
    one.add_argument("--finding", metavar="ID", help="list all cases of one finding")
    given = parser.parse_args(arguments)
    known = catalogue_by_id()
    try:
        if given.case is not None:
            lines = case_history.format_history(RECORDS, case_history.find_case(given.case, known))
        elif given.finding is not None:
            lines = list_finding(given.finding, committed_histories(), known)
        else:
            lines = []
            for module in (page_markdown, page_html):
                module.PAGE.write_text(module.page(committed_histories(), known))
                lines.append(str(module.PAGE))
    except (BadInput, UnknownId) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
