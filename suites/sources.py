"""Where do answers come from? A live framework in its own processes, or a record of a release.

One object lives from the first question of a run to its last. Nothing starts before a question is
asked.
"""

from __future__ import annotations

import functools
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec
from packaging.version import InvalidVersion, Version

from adapters import record
from adapters.answer import Answer
from adapters.protocol import Hello
from adapters.record import Record
from adapters.registry import FRAMEWORKS
from adapters.worker_client import WorkerClient
from cases.model import Question

RECORDS = Path(__file__).resolve().parent.parent / "records"


class SourceChoice(msgspec.Struct, frozen=True):
    """How one framework is to answer: "live", "off", or from the record at ``source``."""

    source: str = "live"
    python: str = sys.executable


class RecordedAnswers(msgspec.Struct, frozen=True):
    """What records hold of a question, by subject.

    ``same``: from the record of the very environment that runs live. ``nearest``: for a framework
    that has no such record, from the record of the nearest release.
    """

    same: dict[str, Answer] = {}
    nearest: dict[str, Answer] = {}


# Neighbouring questions share much, and a few questions are not worth a second process.
QUESTIONS_IN_A_ROW = 32


class LiveFramework:
    """One framework, in as many processes as its registry row says. They share the questions.

    Asks and answers as a `WorkerClient` does.
    """

    def __init__(
        self, name: str, python: str, devices: int, seconds: float, ahead: int, processes: int
    ):
        row = FRAMEWORKS[name]
        self._start = functools.partial(
            WorkerClient, name, row.adapter, row.subjects, python=python, devices=devices,
            seconds=seconds, ahead=ahead,
        )  # fmt: skip
        self._processes = processes
        self._workers = [self._start()]
        self._asked: dict[str, WorkerClient] = {}

    def hello(self) -> Hello | None:
        """What the first process said about itself; None until it has."""
        return self._workers[0].hello()

    def greet(self) -> Hello:
        """What the first process says about itself. Waits for it.

        Raises:
            WorkerError: the framework cannot be asked at all.
        """
        return self._workers[0].greet()

    def ask(self, question: Question) -> None:
        """Queue a question behind those asked before."""
        if question.id not in self._asked:
            place = len(self._asked) // QUESTIONS_IN_A_ROW % self._processes
            if place == len(self._workers):
                self._workers.append(self._start())
            self._asked[question.id] = self._workers[place]
        self._asked[question.id].ask(question)

    def answer(self, question: Question) -> tuple[Answer, ...]:
        """The answers, one per subject in the registry's order; waits for them.

        Raises:
            WorkerError: the framework cannot be asked at all.
        """
        self.ask(question)
        return self._asked[question.id].answer(question)

    def close(self) -> None:
        """End every process at once."""
        for worker in self._workers:
            worker.close()


class Sources:
    """The frameworks of a run, asked together.

    ``devices``: the most that a case needs. ``seconds``: the deadline of one answer. ``ahead``:
    questions in a worker at a time. ``spread``: whether a framework may have several processes.
    ``records``: those that pin answers. ``named``: whether a user named them; then they also pin
    answers that are read from other records.
    """

    def __init__(
        self,
        choices: dict[str, SourceChoice],
        *,
        devices: int = 8,
        seconds: float = 30.0,
        ahead: int = 64,
        spread: bool = True,
        records: Sequence[Path] = (),
        named: bool = False,
    ):
        self._sources: dict[str, LiveFramework | Record] = {}
        self._records = tuple(records)
        self._named = named
        self._pins: dict[str, tuple[Record | None, bool]] = {}
        for name, row in FRAMEWORKS.items():
            choice = choices.get(name, SourceChoice())
            if choice.source == "off":
                continue
            if choice.source == "live":
                processes = row.processes if spread else 1
                self._sources[name] = LiveFramework(
                    name, choice.python, devices, seconds, ahead, processes
                )
            else:
                self._sources[name] = record.load(choice.source, name, row.subjects)

    def ask(self, question: Question) -> None:
        """Put a question to every framework, behind those asked before. Never waits."""
        for source in self._sources.values():
            source.ask(question)

    def answers(self, question: Question) -> dict[str, Answer]:
        """Every subject's answer.

        Raises:
            WorkerError: a framework cannot be asked at all.
        """
        return {
            answer.subject: answer
            for source in self._sources.values()
            for answer in source.answer(question)
        }

    def hellos(self) -> dict[str, Hello]:
        """What each framework says about itself, if it has said so yet."""
        said = {name: source.hello() for name, source in self._sources.items()}
        return {name: hello for name, hello in said.items() if hello is not None}

    def live(self) -> tuple[str, ...]:
        """The frameworks that run, and are not read from a record."""
        return tuple(name for name, one in self._sources.items() if isinstance(one, LiveFramework))

    def greeted(self) -> dict[str, Hello]:
        """What each running framework says about itself; waits for it.

        Raises:
            WorkerError: a framework cannot be asked at all.
        """
        return {
            n: one.greet() for n, one in self._sources.items() if isinstance(one, LiveFramework)
        }

    def pins(self, question: Question) -> RecordedAnswers:
        """What the records hold for the frameworks that run live.

        An answer that differed between recorded runs pins nothing.
        """
        found = RecordedAnswers()
        for name, hello in self.hellos().items():
            # Answers that are read from a record are compared with another record only if a user
            # names it.
            if name not in self.live() and not self._named:
                continue
            if name not in self._pins:
                self._pins[name] = nearest_record(name, hello, self._records)
            kept, same = self._pins[name]
            line = None if kept is None else kept.lines.get(question.id)
            if kept is None or line is None or line.digest != record.digest_question(question):
                continue
            for answer in kept.answer(question):
                if answer.subject not in line.unstable:
                    (found.same if same else found.nearest)[answer.subject] = answer
        return found

    def close(self) -> None:
        """End every process of the run."""
        for source in self._sources.values():
            source.close()


def nearest_record(name: str, hello: Hello, paths: Sequence[Path]) -> tuple[Record | None, bool]:
    """The record that a live framework is compared with, and whether it is of the same environment.

    The same environment has the same release with its local tag, Python minor version and platform.
    Otherwise the record is that of the newest release that is not newer, or else of the oldest.
    """
    releases: list[tuple[Version, Path]] = []
    for path in paths:
        head = record.read_header(path)
        if head.framework == name:
            releases.append((Version(public_release(head.release)), path))
    if not releases:
        return None, False
    releases.sort()
    ours = Version(hello.release)
    older = [one for one in releases if one[0] <= Version(ours.public)]
    path = (older or releases[:1])[-1][1]
    kept = record.load(path, name, FRAMEWORKS[name].subjects)
    header = kept.header
    same = (
        header.release == hello.release
        and header.python == ".".join(hello.python.split(".")[:2])
        and header.platform == record.platform_name()
    )
    return kept, same


def public_release(release: str) -> str:
    """A release without its local tag: 2.13.0 for 2.13.0+cpu."""
    try:
        return Version(release).public
    except InvalidVersion:
        return release


def record_path(folder: Path, framework: str, release: str) -> Path:
    """The path of a release's record in a folder."""
    return folder / f"{framework}-{public_release(release)}.jsonl"


def pinned_releases() -> dict[str, str]:
    """The release of each framework that the project itself runs: its extras in pyproject.toml."""
    with open(RECORDS.parent / "pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    return {name: extras[name][0].partition("==")[2] for name in FRAMEWORKS if name in extras}


def most_devices(questions: Sequence[Question]) -> int:
    """The most devices that a question with data needs, 8 at the least. Dry runs need none."""
    return max([8, *(question.devices for question in questions if question.mode == "real")])
