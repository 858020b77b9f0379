"""Where are the arrays of a record? In one file beside it, each once, under a digest.

The file is xz-compressed: one line of JSON that lists the arrays, then the bytes of every array in
that order. Refuses to know what the arrays mean.
"""

from __future__ import annotations

import hashlib
import lzma
import re
from pathlib import Path

import msgspec

from cases.arrays import Array
from cases.errors import Where

# A text that names something in this file begins with "#" and twelve hex digits.
REFERENCE_MARK = "#"
_DIGITS = 12
_REFERENCE = re.compile(rf"{REFERENCE_MARK}[0-9a-f]{{{_DIGITS}}}")

# An xz-compressed file begins with these bytes.
XZ = b"\xfd7zXZ"

# xz, because shards repeat at longer distances than the window of gzip.
_PRESET = 6

Texts = tuple[str, ...]


class _Index(msgspec.Struct, frozen=True):
    """(reference, dtype, shape, bytes) of every array, and the texts of every list."""

    arrays: tuple[tuple[str, str, tuple[int, ...], int], ...]
    lists: tuple[tuple[str, Texts], ...]


_index = msgspec.json.Decoder(_Index)


class ArrayStore:
    """Arrays, and long lists of texts, by reference: collected for a file or read from one."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}
        self._lists: dict[str, Texts] = {}

    def put(self, array: Array) -> str:
        """Keep an array; its reference.

        Raises:
            ValueError: another array has the same digest.
        """
        head = f"{array.dtype}{list(array.shape)}\n".encode()
        reference = _reference(head + array.data)
        if self._arrays.setdefault(reference, array) != array:
            raise ValueError(f"two arrays of digest {reference}")
        return reference

    def put_list(self, texts: Texts) -> str:
        """Keep a list of texts; its reference.

        Raises:
            ValueError: another list has the same digest.
        """
        reference = _reference(msgspec.json.encode(texts))
        if self._lists.setdefault(reference, texts) != texts:
            raise ValueError(f"two lists of digest {reference}")
        return reference

    def array(self, reference: str) -> Array:
        """The array with this reference; KeyError if there is none."""
        return self._arrays[reference]

    def listed(self, reference: str) -> Texts:
        """The list with this reference; KeyError if there is none."""
        return self._lists[reference]

    def share(self, text: str, other: ArrayStore) -> None:
        """Copy into ``other`` what a text names, and what a list that it names names.

        Text that only looks like a reference does no harm.
        """
        for reference in _REFERENCE.findall(text):
            if reference in self._arrays:
                other._arrays[reference] = self._arrays[reference]
            if reference in self._lists and reference not in other._lists:
                other._lists[reference] = self._lists[reference]
                for named in self._lists[reference]:
                    self.share(named, other)

    def content(self) -> bytes:
        """The content of the file, the same in whatever order things were put."""
        arrays = sorted(self._arrays.items())
        index = _Index(
            tuple((ref, one.dtype, one.shape, len(one.data)) for ref, one in arrays),
            tuple(sorted(self._lists.items())),
        )
        parts = [msgspec.json.encode(index), b"\n", *(one.data for _, one in arrays)]
        return b"".join(parts)


def _reference(said: bytes) -> str:
    return REFERENCE_MARK + hashlib.sha256(said).hexdigest()[:_DIGITS]


def digest(content: bytes) -> str:
    """Sixteen hex digits by which a record recognises its own file of arrays."""
    return hashlib.sha256(content).hexdigest()[:16]


def path_beside(record: Path) -> Path:
    """The path of a record's arrays: ``torch-2.13.0.values.xz`` for ``torch-2.13.0.jsonl``."""
    return record.with_name(record.name.removesuffix(".jsonl") + ".values.xz")


def pack(content: bytes) -> bytes:
    """The content as the file has it."""
    return lzma.compress(content, preset=_PRESET)


def read(path: Path, wanted: str, record: str) -> ArrayStore:
    """All that a file holds, if its content has the digest ``wanted``, as its record says.

    Raises:
        BadInput: it cannot be read, is cut short or damaged, or belongs to another record.
    """
    where = Where(str(path))
    its = f"the values of {record}"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise where.error(f"{error.strerror}", its) from None
    if not data.startswith(XZ):
        raise where.error("a file that is not xz-compressed", its)
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        content = decoder.decompress(data)
    except lzma.LZMAError:
        raise where.error("a damaged file", its) from None
    if not decoder.eof:
        raise where.error("a file cut short", its)
    if digest(content) != wanted:
        found = f"values of another run (digest {digest(content)})"
        raise where.error(found, f"{its} (digest {wanted})")
    return _unpack(content)


def _unpack(content: bytes) -> ArrayStore:
    """The content has the right digest, so `ArrayStore.content` made it and it can be read."""
    first, _, data = content.partition(b"\n")
    index = _index.decode(first)
    values, start = ArrayStore(), 0
    for reference, dtype, shape, size in index.arrays:
        values._arrays[reference] = Array(dtype, shape, data[start : start + size])
        start += size
    values._lists.update(index.lists)
    return values
