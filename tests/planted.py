"""Records with a change planted in a copy: what the drift page has to find, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import msgspec

from adapters import interface, record
from adapters.answer import Answer, Observed
from adapters.interface import Default, Fact, Head, Interface, Name, Printed
from adapters.record import Record
from cases.model import Case
from reports.drift import pages as drift_pages
from reports.drift import release_history
from reports.drift.model import FrameworkHistory, Upgrade
from suites.sources import RECORDS, record_path

OLDER = {"torch": "2.13.0", "jax": "0.10.2"}
# No release that a names table has a place for.
NEWER = {"torch": "2.13.9", "jax": "0.10.9"}

MOVE = "x4-s0-to-s1"
OP = "softmax-a2.b2-s0.p"
PRODUCT = "matmul-x4-r-by-s0"
REFUSED = "a2.b2-s0.r-to-p.p"
PLAN = "dense-p4.r2.s4.c2.t8.e16.x1"
RECIPE = "mlp-tp-tp2"
MESHES = "slices-of-three-axes"
IDS = (MOVE, OP, PRODUCT, REFUSED, PLAN, RECIPE, MESHES)

FACTS: tuple[Fact, ...] = (
    Default("run_check of DTensor.from_local", "False"),
    Name("torch.distributed.tensor", "module", used=True),
    Name("torch.distributed.tensor.DTensor", "class", "(*args, **kwargs)", used=True),
    Name("torch.distributed.tensor.DTensor.redistribute", "function", "(self, placements=None)"),
    Printed("Shard(0)", "S(0)", "Shard(dim=0)"),
)


def about(fact: Fact) -> str:
    """What a fact is about."""
    return fact.path if isinstance(fact, Name) else fact.what


Edit = Callable[[Answer], Answer]


def same(answer: Answer) -> Answer:
    """Nothing planted."""
    return answer


@cache
def kept(framework: str) -> Record:
    """The committed record that copies are made of."""
    return record.load(record_path(RECORDS, framework, OLDER[framework]), framework)


@cache
def cases() -> dict[str, Case]:
    """The catalogue, by id."""
    return release_history.catalogue_by_id()


def planted(
    folder: Path,
    edit: Edit = same,
    *,
    framework: str = "torch",
    ids: Sequence[str] = IDS,
    unseen: tuple[str, ...] = (),
    facts: tuple[Sequence[Fact], Sequence[Fact]] | None = None,
    unstable: bool = False,
    older: bool = False,
) -> Path:
    """Two records of one release, the newer edited, and what both list of their interface.

    ``unseen``: what the newer says that it hides. ``unstable``: the newer is of two runs, one with
    the edit and one without. ``older``: the older is edited as well.
    """
    folder.mkdir(exist_ok=True)
    hello = kept(framework).hello()
    rows = [(cases()[id].question, kept(framework).stored_answers(id)) for id in ids]
    edited = [(asked, tuple(map(edit, given))) for asked, given in rows]
    first = record_path(folder, framework, OLDER[framework])
    record.write(first, hello, edited if older else rows)
    later = msgspec.structs.replace(hello, release=NEWER[framework], unseen=unseen)
    path = record_path(folder, framework, NEWER[framework])
    record.write(path, later, edited)
    if unstable:
        again = path.with_name(f"again-{path.name}")
        record.write(again, later, rows)
        record.save(path, record.merge([record.load(path), record.load(again)]))
        again.unlink()
    for release, listed in zip((OLDER[framework], NEWER[framework]), facts or ()):
        head = Head(interface.FORMAT, framework, release, "3.11", len(listed))
        name = record_path(folder, framework, release).name.removesuffix(".jsonl")
        interface.write(folder / f"{name}.interface.jsonl", Interface(head, tuple(listed)))
    return folder


def stories(folder: Path) -> tuple[FrameworkHistory, ...]:
    """What a folder of records tells."""
    return release_history.read_histories(folder, cases())


def story(folder: Path) -> FrameworkHistory:
    """The one framework that a folder has records of."""
    (found,) = stories(folder)
    return found


def border(folder: Path) -> Upgrade:
    """What lies between the only two releases of a folder."""
    (found,) = story(folder).borders
    return found


def on(id: str, edit: Edit, subject: str = "") -> Edit:
    """An edit of one case's answers alone, of one subject if it is named."""
    return lambda answer: (
        edit(answer) if answer.question == id and subject in ("", answer.subject) else answer
    )


def seen(name: str, **fields: object) -> Edit:
    """An edit of what is seen of one input or result: a new value, or a function of the old."""

    def changed(one: Observed) -> Observed:
        new = {key: value(getattr(one, key)) if callable(value) else value
               for key, value in fields.items()}  # fmt: skip
        return msgspec.structs.replace(one, **new)

    return lambda answer: msgspec.structs.replace(
        answer, seen=tuple(changed(one) if one.name == name else one for one in answer.seen)
    )


def replaced(**fields: object) -> Edit:
    """An edit of the answer itself."""
    return lambda answer: msgspec.structs.replace(answer, **fields)


def pages(told: Sequence[FrameworkHistory]) -> tuple[str, str]:
    """Both pages: Markdown, then HTML."""
    return (
        drift_pages.markdown(told, cases()),
        drift_pages.html(told, cases()),
    )
