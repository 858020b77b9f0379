"""How is an answer written down? As short JSON that a person can read and a diff can show.

What follows from the rest is left out: offsets that the layout gives by the chunk rule, shards
that are the slices of the full value at their offsets, defaults. Small arrays stand in the text,
others under a digest in the record's `Values`. Nothing is lost: `encode` leaves out only what
`decode` gives back. Refuses to know files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from adapters.answer import (
    Answer,
    Collective,
    Crashed,
    Hung,
    Observed,
    Refused,
    Unsupported,
)
from adapters.short import (
    NONE,
    counted,
    read_array,
    read_collective,
    read_end,
    read_layout,
    read_mesh,
    read_offset,
    read_type,
    runs,
    say_array,
    say_collective,
    say_end,
    say_layout,
    say_mesh,
    say_offset,
    say_type,
    short,
    unrun,
)
from adapters.values import MARK, Texts, Values
from cases.arrays import Array, unpack
from cases.errors import shown
from cases.layout import offset, ranges, used
from cases.model import Foreign, Layout, Mesh

# A list of arrays whose texts are longer than this together is put aside.
_LONGEST = 80

# What an answer is that is like another subject's.
_AS = "as "

Offsets = tuple[tuple[int, ...] | None, ...]
Fired = tuple[str | Collective, ...]
Spans = tuple[tuple[slice, ...], ...]
S = TypeVar("S")
T = TypeVar("T")


class Unreadable(Exception):
    """A text that says no answer: where in the answers, what was found, what is wanted."""

    def __init__(self, keys: tuple[str, ...], found: str, wanted: str):
        super().__init__(f"found {found}, wanted {wanted}")
        self.keys = keys
        self.found = found
        self.wanted = wanted

    def under(self, *keys: str) -> Unreadable:
        """The same, told from further out."""
        return Unreadable((*keys, *self.keys), self.found, self.wanted)


class _Seen(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An `Observed` without its name. ``shards`` and ``offsets`` left out follow from the rest."""

    type: str
    layout: str | Layout | Foreign | None = None
    mesh: str | Mesh | None = None
    full: str | Texts = ()
    shards: str | Texts | UnsetType | None = UNSET
    offsets: Texts | UnsetType | None = UNSET
    local: tuple[int, ...] | None = None
    collectives: Fired | None = None
    full_collectives: Fired | None = None
    disagreements: Texts = ()
    note: str = ""


class _Answer(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An `Answer` without its question and subject."""

    end: str | Refused | Unsupported | Crashed | Hung = "done"
    seen: dict[str, _Seen] = {}
    program: Fired | None = None
    complaints: Texts = ()
    apart: Texts = ()
    peak: int | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, _Answer | str])


def encode(answers: Sequence[Answer], mesh: Mesh, values: Values) -> msgspec.Raw:
    """One question's answers as a JSON object by subject; arrays are put into ``values``.

    ``mesh``: the question's, on which a layout lies where nothing else is said. An answer that
    is no more than its end is that text; one that is an earlier subject's too says so.

    Raises:
        ValueError: two answers of one subject, or two things seen of one name.
    """
    told: dict[str, bytes] = {}
    for answer in answers:
        if answer.subject in told:
            raise ValueError(f"two answers of {answer.subject} to {answer.question}")
        kept = _keep(answer, mesh, values)
        only = isinstance(kept.end, str) and kept == _Answer(kept.end)
        text = _encoder.encode(kept.end if only else kept)
        same = [subject for subject, other in told.items() if other == text]
        reference = _encoder.encode(_AS + same[0]) if same else text
        told[answer.subject] = min(text, reference, key=len)
    rows = [b"%b:%b" % (_encoder.encode(subject), text) for subject, text in told.items()]
    return msgspec.Raw(b"{%b}" % b",".join(rows))


def decode(text: msgspec.Raw, question: str, mesh: Mesh, values: Values) -> tuple[Answer, ...]:
    """The answers that `encode` was given, to the question called ``question``.

    Raises:
        Unreadable: the text says no answers, or names what ``values`` does not have.
    """
    try:
        told = _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise Unreadable((), f"no answers ({error})", "one per subject") from None
    answers: dict[str, Answer] = {}
    for subject, kept in told.items():
        try:
            if isinstance(kept, str) and kept.startswith(_AS):
                other = answers.get(kept.removeprefix(_AS))
                if other is None:
                    raise Unreadable((), repr(kept), "the name of an earlier subject")
                answers[subject] = msgspec.structs.replace(other, subject=subject)
            else:
                whole = _Answer(kept) if isinstance(kept, str) else kept
                answers[subject] = _answer(whole, question, subject, mesh, values)
        except Unreadable as error:
            raise error.under(subject) from None
    return tuple(answers.values())


def _keep(answer: Answer, mesh: Mesh, values: Values) -> _Answer:
    seen = {one.name: _keep_seen(one, mesh, values) for one in answer.seen}
    if len(seen) < len(answer.seen):
        raise ValueError(f"{answer.subject} saw two things of one name in {answer.question}")
    end = short(answer.end, say_end, read_end)
    return _Answer(
        end,  # type: ignore[arg-type]  # Done is always said as a text.
        seen,
        _keep_fired(answer.program),
        answer.complaints,
        answer.apart,
        answer.peak,
    )


def _answer(kept: _Answer, question: str, subject: str, mesh: Mesh, values: Values) -> Answer:
    seen = []
    for name, one in kept.seen.items():
        try:
            seen.append(_observed(name, one, mesh, values))
        except Unreadable as error:
            raise error.under("seen", name) from None
    return Answer(
        question,
        subject,
        _read("end", read_end, kept.end) if isinstance(kept.end, str) else kept.end,
        tuple(seen),
        _fired("program", kept.program),
        kept.complaints,
        kept.apart,
        kept.peak,
    )


def _keep_seen(seen: Observed, mesh: Mesh, values: Values) -> _Seen:
    layout = seen.layout
    full = tuple(_keep_array(array, seen.dtype, values) for array in seen.full)
    shards: str | Texts | UnsetType | None = UNSET
    if seen.shards != _cut(seen.full, seen.offsets):
        shards = None if seen.shards is None else _keep_shards(seen.shards, seen.dtype, values)
    offsets: Texts | UnsetType | None = UNSET
    if seen.offsets != _due(layout, seen.mesh or mesh, seen.shape, seen.local):
        offsets = None if seen.offsets is None else runs(map(say_offset, seen.offsets))
    return _Seen(
        say_type(seen.dtype, seen.shape),
        short(layout, say_layout, read_layout) if isinstance(layout, Layout) else layout,
        seen.mesh and short(seen.mesh, say_mesh, read_mesh),
        full[0] if len(full) == 1 else runs(full),
        shards,
        offsets,
        seen.local,
        _keep_fired(seen.collectives),
        _keep_fired(seen.full_collectives),
        seen.disagreements,
        seen.note,
    )


def _observed(name: str, kept: _Seen, mesh: Mesh, values: Values) -> Observed:
    dtype, shape = _read("type", read_type, kept.type)
    layout, own = kept.layout, kept.mesh
    if isinstance(layout, str):
        layout = _read("layout", read_layout, layout)
    if isinstance(own, str):
        own = _read("mesh", read_mesh, own)
    offsets: Offsets | None = None
    if isinstance(kept.offsets, UnsetType):
        offsets = _due(layout, own or mesh, shape, kept.local)
    elif kept.offsets is not None:
        offsets = _read("offsets", _read_offsets, kept.offsets)
    texts = (kept.full,) if isinstance(kept.full, str) else kept.full
    full = tuple(_arrays("full", texts, dtype, values))
    shards: tuple[Array | None, ...] | None = None
    if isinstance(kept.shards, UnsetType):
        shards = _cut(full, offsets)
    elif kept.shards is not None:
        texts = _listed(kept.shards, values) if isinstance(kept.shards, str) else kept.shards
        shards = tuple(_arrays("shards", texts, dtype, values))
    return Observed(
        name,
        dtype,
        shape,
        layout,
        shards,
        offsets,
        full,
        _fired("collectives", kept.collectives),
        _fired("full_collectives", kept.full_collectives),
        kept.disagreements,
        kept.note,
        own,
        kept.local,
    )


def _read(key: str, read: Callable[[S], T], said: S) -> T:
    try:
        return read(said)
    except ValueError as error:
        raise Unreadable((key,), shown(said), str(error)) from None


def _keep_fired(fired: tuple[Collective, ...] | None) -> Fired | None:
    if fired is None:
        return None
    said = [short(one, say_collective, read_collective) for one in fired]
    texts = [one for one in said if isinstance(one, str)]
    return runs(texts) if len(texts) == len(said) else tuple(said)


def _fired(key: str, kept: Fired | None) -> tuple[Collective, ...] | None:
    return None if kept is None else _read(key, _read_fired, kept)


@lru_cache(maxsize=4096)
def _read_fired(kept: Fired) -> tuple[Collective, ...]:
    found: list[Collective] = []
    for one in kept:
        found += map(read_collective, unrun((one,))) if isinstance(one, str) else (one,)
    return tuple(found)


@lru_cache(maxsize=4096)
def _read_offsets(kept: Texts) -> Offsets:
    return tuple(map(read_offset, unrun(kept)))


def _keep_array(array: Array, dtype: str, values: Values) -> str:
    """The elements, where they are few and of ``dtype``; else a reference."""
    text = say_array(array) if array.dtype == dtype else ""
    try:
        same = text != "" and read_array(text, dtype) == array
    except ValueError:
        same = False
    return text if same else values.put(array)


def _arrays(key: str, texts: Texts, dtype: str, values: Values) -> list[Any]:
    """The arrays; None where the texts have none."""
    found: list[Array | None] = []
    for text, count in counted(texts):
        try:
            if text.startswith(MARK):
                array: Array | None = values.array(text)
            else:
                array = None if text == NONE else read_array(text, dtype)
        except KeyError:
            wanted = "an array that the record's values have"
            raise Unreadable((key,), repr(text), wanted) from None
        except ValueError as error:
            raise Unreadable((key,), repr(text), str(error)) from None
        found += [array] * count
    return found


def _keep_shards(shards: tuple[Array | None, ...], dtype: str, values: Values) -> str | Texts:
    texts = runs(NONE if array is None else _keep_array(array, dtype, values) for array in shards)
    return values.put_list(texts) if sum(map(len, texts)) > _LONGEST else texts


def _listed(reference: str, values: Values) -> Texts:
    try:
        return values.listed(reference)
    except KeyError:
        wanted = "a list that the record's values have"
        raise Unreadable(("shards",), repr(reference), wanted) from None


def _due(
    layout: Layout | Foreign | None, mesh: Mesh, shape: tuple[int, ...], local: object
) -> Offsets | None:
    """The offsets that follow from a layout by the chunk rule; none of what has no data."""
    return _ruled(layout, mesh, shape) if local is None and isinstance(layout, Layout) else None


@lru_cache(maxsize=4096)
def _ruled(layout: Layout, mesh: Mesh, shape: tuple[int, ...]) -> Offsets | None:
    if layout.ndim != len(shape) or not {*used(layout)} <= {*mesh.names}:
        return None
    return tuple(map(offset, ranges(mesh, layout, shape)))


def _cut(full: tuple[Array, ...], offsets: Offsets | None) -> tuple[Array, ...] | None:
    """The slices of the one full value at these offsets; None where that says nothing."""
    return _slices(full[0], offsets) if len(full) == 1 and offsets else None


# The subjects of a case, and its inputs and results, often hold the same.
@lru_cache(maxsize=1024)
def _slices(full: Array, offsets: Offsets) -> tuple[Array, ...] | None:
    spans = _spans(offsets, full.shape)
    if spans is None:
        return None
    try:
        whole = unpack(full)
    except ValueError:
        return None
    shards = (whole[span] for span in spans)
    return tuple(Array(full.dtype, shard.shape, shard.tobytes()) for shard in shards)


@lru_cache(maxsize=4096)
def _spans(offsets: Offsets, shape: tuple[int, ...]) -> Spans | None:
    """What each shard holds that reaches, along every dim, to the next larger offset or the end."""
    if any(one is None or len(one) != len(shape) for one in offsets):
        return None
    starts = np.array(offsets, np.int64).reshape(len(offsets), len(shape))
    if (starts < 0).any() or (starts > shape).any():
        return None
    reach = []
    for column, size in zip(starts.T.tolist(), shape):
        edges = sorted({*column, size})
        reach.append({size: size} | dict(itertools.pairwise(edges)))
    return tuple(
        tuple(slice(start, stops[start]) for start, stops in zip(row, reach))
        for row in starts.tolist()
    )
