"""What does a run record, and where? It makes records, or adds to them.

With ``--only-new`` only the questions are asked that the record lacks, or has with other words. All
its other lines stay as they are. Refuses to know what is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from adapters import record
from adapters.answer import Answer
from adapters.code_digest import digest_code
from adapters.protocol import Hello
from adapters.record import Record
from adapters.registry import FRAMEWORKS
from cases.model import Question
from suites.sources import record_path

Rows = Sequence[tuple[Question, Mapping[str, Answer]]]


class Recording:
    """What one run records into ``target``, a file or a folder.

    ``only_new``: add to the records that are there.
    """

    def __init__(self, target: Path, only_new: bool):
        self._target = target
        self._only_new = only_new

    def lacking(self, hellos: Mapping[str, Hello], questions: Sequence[Question]) -> set[str]:
        """Ids of the questions that a record lacks; all ids unless only new ones are wanted.

        Raises:
            BadInput: a record cannot be read, or is of another release or environment.
        """
        there = [self._existing_record(name, hello) for name, hello in hellos.items()]
        return {
            question.id
            for question in questions
            if any(one is None or not one.has(question) for one in there)
        }

    def write(self, hellos: Mapping[str, Hello], rows: Rows) -> None:
        """Record the answers of every framework, except those that its record has already.

        Raises:
            BadInput: a record that was there cannot be added to.
            OSError: a file cannot be written.
        """
        for name, hello in hellos.items():
            own = FRAMEWORKS[name]
            there = self._existing_record(name, hello)
            new = [
                (question, tuple(answers[subject] for subject in own.subjects))
                for question, answers in rows
                if there is None or not there.has(question)
            ]
            if not new:
                continue
            made = record.record_of(hello, new, digest_code(own.adapter))
            if there is not None:
                made = record.merge([there.with_only(there.lines.keys() - made.lines), made])
            record.save(self._path(name, hello), made)

    def _path(self, name: str, hello: Hello) -> Path:
        into_folder = self._target.is_dir()
        return record_path(self._target, name, hello.release) if into_folder else self._target

    def _existing_record(self, name: str, hello: Hello) -> Record | None:
        path = self._path(name, hello)
        if not self._only_new or not path.exists():
            return None
        found = record.load(path, name)
        found.check_can_extend(hello, FRAMEWORKS[name].subjects)
        return found
