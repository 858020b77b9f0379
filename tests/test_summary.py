"""Is the end of a run short, and does it say what matters? Right, wrong, causes, what is new."""

from __future__ import annotations

from typing import Any

from adapters.protocol import VERSION, Hello
from adapters.registry import subjects
from suites.summary import MOST_COLUMNS, MOST_LINES, Summary
from suites.verdict import RECORD, Verdict

LONG = "a-cause-with-a-name-that-goes-on-and-on-until-no-line-has-room-for-two-of-them"


def line(case: str, subject: str = "torch", aspect: str = "global", **more: Any) -> Verdict:
    fields = {"verdict": "agree", **more}
    return Verdict(case, "y", aspect, subject, fields.pop("against", "reference"), **fields)  # type: ignore[arg-type]


def summed(verdicts: list[Verdict], own: bool = False) -> list[str]:
    """The lines of a summary of verdicts, of two frameworks with many facts."""
    summary = Summary(None, own)
    summary.verdicts = verdicts
    summary.cases = len({one.case for one in verdicts})
    summary.hellos = {
        name: Hello(VERSION, name, "2.13.0+cpu", "3.11.7", facts=("one fact", "8 more ranks"))
        for name in ("torch", "jax")
    }
    return summary.lines()


def unsupported(case: str, subject: str) -> Verdict:
    why = "no such thing in this release " * 5
    return line(case, subject, "ending", verdict="not comparable", got="unsupported", why=why)


def test_it_fits_a_terminal_whatever_is_met() -> None:
    """All subjects, all severities, sixty causes, and thirty cases that are not asked."""
    verdicts = []
    for n in range(60):
        for subject in subjects():
            for severity in ("wrong", "refused", "costly"):
                ledger = f"{LONG}-{n}"
                verdicts += [
                    line(f"c{n}", subject, severity=severity, ledger=ledger, verdict=verdict)
                    for verdict in ("known", "divergence")
                ]
        verdicts += [line(f"r{n}", severity=one) for one in ("route refused", "free", "documented")]
        verdicts += [unsupported(f"n{n}", subject) for subject in subjects()]
    for own in (False, True):
        lines = summed(verdicts, own)
        assert len(lines) <= MOST_LINES == 25
        assert max(map(len, lines)) <= MOST_COLUMNS == 100
        assert any("more" in one for one in lines)
    assert lines[-1].startswith("and ")
    assert lines[-1].endswith(" more; --verdicts has all")


def test_a_column_is_there_only_where_some_subject_has_any() -> None:
    verdicts = [line("a"), line("b", severity="wrong", verdict="divergence"), line("a", "jax/jit")]
    lines = summed(verdicts)
    head = next(at for at, one in enumerate(lines) if one.startswith("subject"))
    assert lines[head].split() == ["subject", "cases", "right", "wrong"]
    assert [one.split() for one in lines[head + 1 : head + 3]] == [
        ["torch", "2", "1", "1"], ["jax/jit", "1", "1", "0"],
    ]  # fmt: skip


def test_a_case_is_counted_once_by_the_gravest_that_it_met() -> None:
    grave = ("free", "costly", "wrong", "refused")
    lines = summed([line("a", severity=severity) for severity in grave])
    assert ["torch", "1", "0", "1"] in [one.split() for one in lines]


def test_a_route_that_only_executes_plans_and_was_asked_for_none_has_no_row() -> None:
    verdicts = [line("a"), unsupported("a", "jax/shard_map:implied"), unsupported("a", "jax/jit")]
    lines = summed(verdicts)
    rows = {one.split()[0] for one in lines if one}
    assert "jax/jit" in rows
    assert "jax/shard_map:implied" not in rows


def test_causes_are_named_with_their_counts_the_most_met_first() -> None:
    verdicts = [
        line(f"a{n}", severity="wrong", verdict="known", ledger="rare" if n < 2 else "often")
        for n in range(7)
    ]
    lines = summed(verdicts)
    at = next(at for at, one in enumerate(lines) if one.startswith("known"))
    assert lines[at] == "known: 7 lines by 2 causes; docs/causes.md has each"
    assert lines[at + 1].split() == ["5", "often", "2", "rare"]
    assert lines[-1] == "new:   none"


def test_what_is_new_is_told_by_severity_with_what_changed_from_the_record() -> None:
    verdicts = [
        line("a", severity="wrong", verdict="divergence", ledger="known-one"),
        line("b", severity="wrong", verdict="divergence", against=RECORD),
    ]
    assert summed(verdicts)[-3:] == [
        "new:   1 wrong, 1 changed lines in 2 cases",
        "       the project's ledger names these causes, and excuses none here:",
        "       1 known-one",
    ]


def test_a_user_s_case_that_a_framework_was_not_asked_is_named() -> None:
    """Though it passes by the other; a route alone that lacks it is not told."""
    verdicts = [line("a"), *(unsupported("a", route) for route in subjects()[1:])]
    (told,) = (one for one in summed(verdicts, own=True) if one.startswith("not asked"))
    assert told.startswith("not asked: jax of a: no such thing")
    assert not any(one.startswith("not asked") for one in summed(verdicts))
    done = [line("a"), line("a", "jax/jit", "ending"), unsupported("a", "jax/explicit")]
    assert not any(one.startswith("not asked") for one in summed(done, own=True))
