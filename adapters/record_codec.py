"""How is an answer written down? As short JSON that a person can read and a diff can show.

What follows from the rest is left out: defaults, offsets that the layout gives by the chunk rule,
and shards that are the slices of the full value at their offsets. Small arrays stand in the text;
others stand under a digest in the record's `ArrayStore`. Nothing is lost: `decode` gives back all
that `encode` leaves out. Refuses to know files.
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
from adapters.array_store import REFERENCE_MARK, ArrayStore, Texts
from adapters.compact_notation import (
    ABSENT,
    compact,
    expand_runs,
    format_array,
    format_collective,
    format_layout,
    format_mesh,
    format_offset,
    format_short_end,
    format_type,
    group_runs,
    parse_array,
    parse_collective,
    parse_end,
    parse_layout,
    parse_mesh,
    parse_offset,
    parse_runs,
    parse_type,
)
from cases.arrays import Array, unpack
from cases.errors import format_value
from cases.layout import axes_of_layout, index_ranges, offset
from cases.model import Foreign, Layout, Mesh

# A list of arrays goes into the store if their texts are longer than this together.
_LONGEST = 80

# The text of an answer that equals that of another subject.
_AS = "as "

Offsets = tuple[tuple[int, ...] | None, ...]
Fired = tuple[str | Collective, ...]
Spans = tuple[tuple[slice, ...], ...]
S = TypeVar("S")
T = TypeVar("T")


class UnreadableAnswer(Exception):
    """A text that is no answer: where it is, what was found, and what is wanted."""

    def __init__(self, keys: tuple[str, ...], found: str, wanted: str):
        super().__init__(f"found {found}, wanted {wanted}")
        self.keys = keys
        self.found = found
        self.wanted = wanted

    def under(self, *keys: str) -> UnreadableAnswer:
        """The same error, with a place that begins further out."""
        return UnreadableAnswer((*keys, *self.keys), self.found, self.wanted)


class _StoredTensor(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An `Observed` without its name. ``shards`` and ``offsets`` are left out if they follow."""

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


class _StoredAnswer(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An `Answer` without its question and subject."""

    end: str | Refused | Unsupported | Crashed | Hung = "done"
    seen: dict[str, _StoredTensor] = {}
    program: Fired | None = None
    complaints: Texts = ()
    apart: Texts = ()
    peak: int | None = None


_encoder = msgspec.json.Encoder()
# The answers to one question, by subject.
StoredAnswers = dict[str, _StoredAnswer | str]
_decoder = msgspec.json.Decoder(StoredAnswers)


def encode(answers: Sequence[Answer], mesh: Mesh, values: ArrayStore) -> msgspec.Raw:
    """One question's answers as a JSON object by subject; large arrays go into ``values``.

    ``mesh``: the question's; a layout lies on it unless it says otherwise. An answer that consists
    of its end alone is that text, and one that equals an earlier subject's names that subject.

    Raises:
        ValueError: two answers of one subject, or two observations of one name.
    """
    told: dict[str, bytes] = {}
    for answer in answers:
        if answer.subject in told:
            raise ValueError(f"two answers of {answer.subject} to {answer.question}")
        kept = _encode_answer(answer, mesh, values)
        only = isinstance(kept.end, str) and kept == _StoredAnswer(kept.end)
        text = _encoder.encode(kept.end if only else kept)
        same = [subject for subject, other in told.items() if other == text]
        reference = _encoder.encode(_AS + same[0]) if same else text
        told[answer.subject] = min(text, reference, key=len)
    rows = [b"%b:%b" % (_encoder.encode(subject), text) for subject, text in told.items()]
    return msgspec.Raw(b"{%b}" % b",".join(rows))


def decode(text: msgspec.Raw, question: str, mesh: Mesh, values: ArrayStore) -> tuple[Answer, ...]:
    """The answers that `encode` was given, to the question called ``question``.

    Raises:
        UnreadableAnswer: the text is no answer, or names something that ``values`` lacks.
    """
    try:
        told = _decoder.decode(text)
    except msgspec.DecodeError as error:
        raise UnreadableAnswer((), f"no answers ({error})", "one per subject") from None
    answers: dict[str, Answer] = {}
    for subject, kept in told.items():
        try:
            if isinstance(kept, str) and kept.startswith(_AS):
                other = answers.get(kept.removeprefix(_AS))
                if other is None:
                    raise UnreadableAnswer((), repr(kept), "the name of an earlier subject")
                answers[subject] = msgspec.structs.replace(other, subject=subject)
            else:
                whole = _StoredAnswer(kept) if isinstance(kept, str) else kept
                answers[subject] = _decode_answer(whole, question, subject, mesh, values)
        except UnreadableAnswer as error:
            raise error.under(subject) from None
    return tuple(answers.values())


def _encode_answer(answer: Answer, mesh: Mesh, values: ArrayStore) -> _StoredAnswer:
    seen = {one.name: _encode_tensor(one, mesh, values) for one in answer.seen}
    if len(seen) < len(answer.seen):
        raise ValueError(f"{answer.subject} saw two things of one name in {answer.question}")
    end = compact(answer.end, format_short_end, parse_end)
    return _StoredAnswer(
        end,  # type: ignore[arg-type]  # Done is always said as a text.
        seen,
        _encode_collectives(answer.program),
        answer.complaints,
        answer.apart,
        answer.peak,
    )


def _decode_answer(
    kept: _StoredAnswer, question: str, subject: str, mesh: Mesh, values: ArrayStore
) -> Answer:
    seen = []
    for name, one in kept.seen.items():
        try:
            seen.append(_decode_tensor(name, one, mesh, values))
        except UnreadableAnswer as error:
            raise error.under("seen", name) from None
    return Answer(
        question,
        subject,
        _parse_field("end", parse_end, kept.end) if isinstance(kept.end, str) else kept.end,
        tuple(seen),
        _decode_collectives("program", kept.program),
        kept.complaints,
        kept.apart,
        kept.peak,
    )


def _encode_tensor(seen: Observed, mesh: Mesh, values: ArrayStore) -> _StoredTensor:
    layout = seen.layout
    full = tuple(_encode_array(array, seen.dtype, values) for array in seen.full)
    shards: str | Texts | UnsetType | None = UNSET
    if seen.shards != _expected_shards(seen.full, seen.offsets):
        shards = None if seen.shards is None else _encode_shards(seen.shards, seen.dtype, values)
    offsets: Texts | UnsetType | None = UNSET
    if seen.offsets != _expected_offsets(layout, seen.mesh or mesh, seen.shape, seen.local):
        offsets = None if seen.offsets is None else group_runs(map(format_offset, seen.offsets))
    return _StoredTensor(
        format_type(seen.dtype, seen.shape),
        compact(layout, format_layout, parse_layout) if isinstance(layout, Layout) else layout,
        seen.mesh and compact(seen.mesh, format_mesh, parse_mesh),
        full[0] if len(full) == 1 else group_runs(full),
        shards,
        offsets,
        seen.local,
        _encode_collectives(seen.collectives),
        _encode_collectives(seen.full_collectives),
        seen.disagreements,
        seen.note,
    )


def _decode_tensor(name: str, kept: _StoredTensor, mesh: Mesh, values: ArrayStore) -> Observed:
    dtype, shape = _parse_field("type", parse_type, kept.type)
    layout, own = kept.layout, kept.mesh
    if isinstance(layout, str):
        layout = _parse_field("layout", parse_layout, layout)
    if isinstance(own, str):
        own = _parse_field("mesh", parse_mesh, own)
    offsets: Offsets | None = None
    if isinstance(kept.offsets, UnsetType):
        offsets = _expected_offsets(layout, own or mesh, shape, kept.local)
    elif kept.offsets is not None:
        offsets = _parse_field("offsets", _parse_offsets, kept.offsets)
    texts = (kept.full,) if isinstance(kept.full, str) else kept.full
    full = tuple(_decode_arrays("full", texts, dtype, values))
    shards: tuple[Array | None, ...] | None = None
    if isinstance(kept.shards, UnsetType):
        shards = _expected_shards(full, offsets)
    elif kept.shards is not None:
        texts = _read_list(kept.shards, values) if isinstance(kept.shards, str) else kept.shards
        shards = tuple(_decode_arrays("shards", texts, dtype, values))
    return Observed(
        name,
        dtype,
        shape,
        layout,
        shards,
        offsets,
        full,
        _decode_collectives("collectives", kept.collectives),
        _decode_collectives("full_collectives", kept.full_collectives),
        kept.disagreements,
        kept.note,
        own,
        kept.local,
    )


def _parse_field(key: str, read: Callable[[S], T], said: S) -> T:
    try:
        return read(said)
    except ValueError as error:
        raise UnreadableAnswer((key,), format_value(said), str(error)) from None


def _encode_collectives(fired: tuple[Collective, ...] | None) -> Fired | None:
    if fired is None:
        return None
    said = [compact(one, format_collective, parse_collective) for one in fired]
    texts = [one for one in said if isinstance(one, str)]
    return group_runs(texts) if len(texts) == len(said) else tuple(said)


def _decode_collectives(key: str, kept: Fired | None) -> tuple[Collective, ...] | None:
    return None if kept is None else _parse_field(key, _parse_collectives, kept)


@lru_cache(maxsize=4096)
def _parse_collectives(kept: Fired) -> tuple[Collective, ...]:
    found: list[Collective] = []
    for one in kept:
        found += map(parse_collective, expand_runs((one,))) if isinstance(one, str) else (one,)
    return tuple(found)


@lru_cache(maxsize=4096)
def _parse_offsets(kept: Texts) -> Offsets:
    return tuple(map(parse_offset, expand_runs(kept)))


def _encode_array(array: Array, dtype: str, values: ArrayStore) -> str:
    """The elements, if they are few and have the dtype ``dtype``; else a reference."""
    text = format_array(array) if array.dtype == dtype else ""
    try:
        same = text != "" and parse_array(text, dtype) == array
    except ValueError:
        same = False
    return text if same else values.put(array)


def _decode_arrays(key: str, texts: Texts, dtype: str, values: ArrayStore) -> list[Any]:
    """The arrays; None if there are no texts."""
    found: list[Array | None] = []
    for text, count in parse_runs(texts):
        try:
            if text.startswith(REFERENCE_MARK):
                array: Array | None = values.array(text)
            else:
                array = None if text == ABSENT else parse_array(text, dtype)
        except KeyError:
            wanted = "an array that the record's values have"
            raise UnreadableAnswer((key,), repr(text), wanted) from None
        except ValueError as error:
            raise UnreadableAnswer((key,), repr(text), str(error)) from None
        found += [array] * count
    return found


def _encode_shards(shards: tuple[Array | None, ...], dtype: str, values: ArrayStore) -> str | Texts:
    texts = group_runs(
        ABSENT if array is None else _encode_array(array, dtype, values) for array in shards
    )
    return values.put_list(texts) if sum(map(len, texts)) > _LONGEST else texts


def _read_list(reference: str, values: ArrayStore) -> Texts:
    try:
        return values.listed(reference)
    except KeyError:
        wanted = "a list that the record's values have"
        raise UnreadableAnswer(("shards",), repr(reference), wanted) from None


def _expected_offsets(
    layout: Layout | Foreign | None, mesh: Mesh, shape: tuple[int, ...], local: object
) -> Offsets | None:
    """The offsets that follow from a layout by the chunk rule; none without data."""
    return (
        _offsets_of_layout(layout, mesh, shape)
        if local is None and isinstance(layout, Layout)
        else None
    )


@lru_cache(maxsize=4096)
def _offsets_of_layout(layout: Layout, mesh: Mesh, shape: tuple[int, ...]) -> Offsets | None:
    if layout.ndim != len(shape) or not {*axes_of_layout(layout)} <= {*mesh.names}:
        return None
    return tuple(map(offset, index_ranges(mesh, layout, shape)))


def _expected_shards(full: tuple[Array, ...], offsets: Offsets | None) -> tuple[Array, ...] | None:
    """The slices of the one full value at these offsets; None if that does not give them."""
    return _slices(full[0], offsets) if len(full) == 1 and offsets else None


# Subjects of a case often hold the same, and so do its inputs and results.
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
    """The index range of each shard: along every dim, up to the next larger offset or the end."""
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
