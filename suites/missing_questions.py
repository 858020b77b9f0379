"""Which questions does the record of a release lack?

A question counts as asked if the record has it word for word, by its digest. Refuses to know how a
release is asked, and what a right answer is: it only tells whether two are the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path

import msgspec

from adapters import array_store, record
from adapters.answer import Answer
from adapters.code_digest import digest_code
from adapters.record import Record
from adapters.registry import FRAMEWORKS
from cases.arrays import Array
from cases.errors import BadInput
from cases.model import Case
from suites.array_difference import EXACT, difference
from suites.sources import public_release, record_path
from suites.truth import truth

# How many characters are shown of two answers, before and after the first that differs.
_BEFORE, _SHOWN = 40, 60


class Environment(msgspec.Struct, frozen=True):
    """A tox environment that records one release."""

    name: str
    framework: str
    release: str


class RecordingOptions(msgspec.Struct, frozen=True):
    """What to record: ``tox``, the command, in the project at ``root``; records go to ``folder``.

    ``runs``: how often each release is asked. ``again``: also ask what a record has. ``verify``:
    how many of its questions to compare; ``seed`` chooses them. ``keep``: leave the environments.
    ``words``: for pytest, which may leave out cases.
    """

    tox: tuple[str, ...]
    root: Path
    folder: Path
    runs: int = 2
    again: bool = False
    verify: int = 0
    seed: int = 0
    keep: bool = False
    words: tuple[str, ...] = ()


class MissingQuestions(msgspec.Struct, frozen=True):
    """What one release is to be asked, and ``why``: "" if there is nothing to do.

    ``kept``: its record without the lines that go; None if it has none. ``due``: digests of the
    questions to ask, by id. ``checked``: ids in ``kept`` that are asked once more to compare.
    ``listing``: whether its interface is to be listed. ``note``: about the code that answered.
    """

    why: str
    kept: Record | None
    due: dict[str, str]
    checked: tuple[str, ...] = ()
    listing: bool = False
    note: str = ""

    @property
    def asked(self) -> bool:
        """Whether the framework has to run at all."""
        return bool(self.due or self.checked or self.listing)


def record_files(folder: Path, framework: str, release: str) -> tuple[Path, Path, Path]:
    """The paths in a folder of a record's text, its arrays, and the release's interface."""
    text = record_path(folder, framework, release)
    return text, array_store.path_beside(text), text.with_suffix(".interface.jsonl")


def find_missing_questions(
    plan: RecordingOptions, environment: Environment, digests: Mapping[str, str]
) -> MissingQuestions:
    """What has to be asked so that a folder has a whole record of a release.

    ``digests``: of every question of the catalogue, by id.
    """
    text, _, interface = record_files(plan.folder, environment.framework, environment.release)
    old, why = read_record(text, environment)
    if old is None:
        return MissingQuestions(why, None, dict(digests), listing=True)
    asked = {id: line.digest for id, line in old.lines.items()}
    lacking = {id: due for id, due in digests.items() if asked.get(id) != due}
    other = len(lacking.keys() & asked.keys())
    gone = len(asked.keys() - digests.keys())
    kept = old.with_only(digests.keys() - lacking.keys())
    counts = ((len(lacking) - other, "new"), (other, "changed"), (gone, "no longer there"))
    told = ", ".join(f"{count} {what}" for count, what in counts if count)
    whys = [f"questions: {told}"] if told else []
    if plan.again:
        whys.append("all once more" if not plan.words else "once more")
        lacking = dict(digests)
    checked: tuple[str, ...] = ()
    stable = [id for id, line in sorted(kept.lines.items()) if not line.unstable]
    if plan.verify and stable:
        chance = random.Random(f"{plan.seed} {environment.name}")
        checked = tuple(sorted(chance.sample(stable, min(plan.verify, len(stable)))))
        whys.append(f"{len(checked)} to verify")
    listing = plan.again or not interface.exists()
    if not interface.exists():
        whys.append("no interface")
    return MissingQuestions(
        ", ".join(whys), kept, lacking, checked, listing, _note(old, environment)
    )


def read_record(text: Path, environment: Environment) -> tuple[Record | None, str]:
    """The record of a release, or why there is none."""
    if not text.exists():
        return None, "no record"
    try:
        old = record.load(text, environment.framework)
    except BadInput as error:
        return None, str(error)
    if public_release(old.header.release) != environment.release:
        return None, f"a record of {old.header.release}"
    return old, ""


def _note(old: Record, environment: Environment) -> str:
    if not old.header.code:
        return "this record does not say which code of the adapter it was made with"
    if old.header.code != digest_code(FRAMEWORKS[environment.framework].adapter):
        return "the adapter's code has changed since this record was made"
    return ""


class Verification(msgspec.Struct, frozen=True):
    """The questions that were asked again and have other answers now, in a few lines for each.

    ``rounded``: ids of those that differ in roundings alone, as on another processor.
    """

    told: tuple[str, ...]
    rounded: tuple[str, ...]


def verify_answers(todo: MissingQuestions, now: Record, cases: Mapping[str, Case]) -> Verification:
    """How the new answers to ``todo.checked`` differ from the recorded ones."""
    told: list[str] = []
    rounded: list[str] = []
    for id in todo.checked:
        assert todo.kept is not None
        subjects = record.find_differing_subjects(todo.kept, now, id)
        were, are = (
            {one.subject: one for one in each.stored_answers(id)} for each in (todo.kept, now)
        )
        if subjects and all(nearly_equal(cases[id], were[one], are[one]) for one in subjects):
            rounded.append(id)
        elif subjects:
            was, is_ = (bytes(one.lines[id].answers) for one in (todo.kept, now))
            told.append(
                "\n".join([f"    {id}: {', '.join(subjects)}", *_show_difference(was, is_)])
            )
    return Verification(tuple(told), tuple(rounded))


def nearly_equal(case: Case, was: Answer, now: Answer) -> bool:
    """Whether two answers differ in values alone, and those by no more than the case allows."""
    if _without_values(was) != _without_values(now):
        return False
    allowed = truth(case).allowed
    return all(
        one == other or (one and other and difference(one, other, allowed.get(name, EXACT)) is None)
        for (name, one), (_, other) in zip(_arrays(was), _arrays(now), strict=True)
    )


def _without_values(answer: Answer) -> Answer:
    """An answer without its values, but with their number."""
    seen = tuple(
        msgspec.structs.replace(
            one, full=(None,) * len(one.full), shards=one.shards and (None,) * len(one.shards)
        )
        for one in answer.seen
    )
    return msgspec.structs.replace(answer, seen=seen)


def _arrays(answer: Answer) -> Iterator[tuple[str, Array | None]]:
    for one in answer.seen:
        yield from ((one.name, array) for array in (*one.full, *(one.shards or ())))


def _show_difference(was: bytes, now: bytes) -> Iterator[str]:
    """Two texts, from a little before the point at which they differ."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(was, now)))
    for word, said in (("was", was), ("is", now)):
        shown = said[max(0, same - _BEFORE) : same + _SHOWN].decode(errors="replace")
        yield f"        {word:3} {shown}"
