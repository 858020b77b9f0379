"""Is an answer's text short, plain to read, and without any loss?"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import ml_dtypes
import msgspec
import numpy as np
import pytest

from adapters import array_store
from adapters.answer import (
    Answer,
    Collective,
    Crashed,
    Done,
    End,
    Hung,
    Observed,
    Refused,
    Unsupported,
)
from adapters.array_store import ArrayStore
from adapters.compact_notation import expand_runs, format_array, group_runs, parse_array
from adapters.record_codec import UnreadableAnswer, decode, encode
from cases.arrays import Array, pack, unpack
from cases.layout import index_ranges, local_shape, offset
from cases.model import Foreign, Layout, Mesh, mesh

MESH = mesh({"a": 2, "b": 2})
S0, S1 = Layout((("a",), ())), Layout(((), ("b", "a")))
WHOLE = pack(np.arange(40, dtype=np.float32).reshape(5, 8))
GATHER = Collective("all-gather", ("a",), 2, 80)


def cut(full: Array, layout: Layout, on: Mesh = MESH) -> tuple[Array, ...]:
    """The shards of an array under a layout."""
    held = index_ranges(on, layout, full.shape)
    return tuple(pack(unpack(full)[tuple(slice(*span) for span in one)]) for one in held)


def starts(full: Array, layout: Layout, on: Mesh = MESH) -> tuple[tuple[int, ...], ...]:
    """The offsets of those shards."""
    return tuple(map(offset, index_ranges(on, layout, full.shape)))


def seen(of: Array = WHOLE, by: Layout = S0, **others: object) -> Observed:
    """What a framework that is right reports of a tensor, and then ``others``."""
    plain = Observed("y", of.dtype, of.shape, by, cut(of, by), starts(of, by), (of,))
    return msgspec.structs.replace(plain, **others)


def said(*answers: Answer) -> dict[str, object]:
    """The text of answers, as JSON values."""
    found = msgspec.json.decode(encode(answers, MESH, ArrayStore()))
    assert isinstance(found, dict)
    return found


def back(answers: Sequence[Answer], on: Mesh = MESH) -> tuple[Answer, ...]:
    """Answers through text and through the file of values."""
    put = ArrayStore()
    text = encode(answers, on, put)
    return decode(text, "q", on, array_store._unpack(put.content()))


def test_a_right_answer_is_said_in_a_line() -> None:
    """What the layout says of shards and offsets is not said again; arrays are named."""
    first = seen(collectives=(GATHER, GATHER), full_collectives=())
    small = pack(np.array([0.5, 1, 2], np.float32))
    second = Observed("z", "float32", (3,), Layout(((),), (("b", "sum"),)), full=(small,))
    found = said(Answer("q", "toy/1", Refused("ValueError", "no", "t"), (first, second)))
    assert found == {
        "toy/1": {
            "end": "refused at t: ValueError: no",
            "seen": {
                "y": {
                    "type": "float32[5,8]",
                    "layout": "P(a,None)",
                    "full": "#0e7e1cc24bf5",
                    "collectives": ["all-gather a 2 80B x2"],
                    "full_collectives": [],
                },
                "z": {
                    "type": "float32[3]",
                    "layout": "P(None) sum(b)",
                    "full": "[0.5,1.0,2.0]",
                    "offsets": None,
                },
            },
        }
    }


@pytest.mark.parametrize("layout", [S0, S1, Layout(((), ())), Layout((("a", "b"), ()))])
def test_slices_at_the_layout_s_offsets_are_left_out(layout: Layout) -> None:
    """Uneven and empty ones too; one element or offset that is another is said."""
    right = seen(by=layout)
    plain = said(Answer("q", "t", Done(), (right,)))["t"]
    assert plain["seen"]["y"].keys() == {"type", "layout", "full"}  # type: ignore[index]
    assert right.shards is not None
    assert right.offsets is not None
    first = unpack(right.shards[0]).copy()
    first.flat[-1] += 1
    shards = (pack(first), *right.shards[1:])
    shifted = ((0, 1), *right.offsets[1:])
    for change, key in (({"shards": shards}, "shards"), ({"offsets": shifted}, "offsets")):
        wrong = Answer("q", "t", Done(), (msgspec.structs.replace(right, **change),))
        assert key in said(wrong)["t"]["seen"]["y"]  # type: ignore[index]
        assert back([wrong]) == (wrong,)


def test_a_tensor_on_another_mesh_is_read_by_that_mesh() -> None:
    """As tensors on derived meshes are."""
    other = Mesh((("*", 2), ("c", 2)), (3, 1, 2, 0))
    layout = Layout((("c",), ()))
    offsets = starts(WHOLE, layout, other)
    one = Observed(
        "y", "float32", WHOLE.shape, layout, cut(WHOLE, layout, other), offsets, (WHOLE,),
        mesh=other,
    )  # fmt: skip
    answer = Answer("q", "t", Done(), (one,))
    text = said(answer)["t"]["seen"]["y"]  # type: ignore[index]
    assert text["mesh"] == "*=2 c=2 on 3,1,2,0"
    assert text.keys() == {"type", "layout", "mesh", "full"}
    assert back([answer]) == (answer,)


def test_an_answer_like_an_earlier_one_says_so() -> None:
    """Where that is shorter than the answer."""
    one = Answer("q", "toy/1", Done(), (seen(),))
    found = said(one, msgspec.structs.replace(one, subject="toy/2"), Answer("q", "toy/3", Done()))
    assert found["toy/2"] == "as toy/1"
    assert found["toy/3"] == "done"
    ended = [Answer("q", name, Done()) for name in ("toy/1", "toy/2")]
    assert said(*ended)["toy/2"] == "done"
    assert back([one, *ended[1:]]) == (one, ended[1])


NAN = struct.unpack("<f", b"\x01\x00\xc0\x7f")[0]
STRANGE = Layout((("no axis",), ("a", "(")))
SCALAR = pack(np.array(3.0))
ODD: dict[str, Observed] = {
    "nothing": Observed("y", "float32", ()),
    "no shards": seen(shards=None),
    "no offsets": seen(offsets=None),
    "no shards at all": seen(shards=(), offsets=(), full=()),
    "no layout": seen(layout=None),
    "a foreign layout": seen(layout=Foreign("P(a,None)")),
    "a layout of other dims": seen(layout=Layout((("a",),))),
    "a layout on an axis that is not there": seen(layout=Layout((("z",), ()))),
    "a layout of strange axes": seen(layout=STRANGE),
    "an axis called None": seen(layout=Layout((("None",), ()))),
    "pending": seen(layout=Layout((("a",), ()), (("b", "max"), ("a", "sum")))),
    "some shards": seen(shards=(None, WHOLE, None, None)),
    "equal shards": seen(shards=(WHOLE,) * 4),
    "different shards": seen(shards=tuple(pack(np.full((3, 9), i, np.int8)) for i in range(4))),
    "shards of other dtypes": seen(shards=(SCALAR, WHOLE, pack(np.array([True])), None)),
    "many small shards": seen(shards=tuple(pack(np.float32([i, i + 0.5])) for i in range(40))),
    "some offsets": seen(offsets=((0, 0), None, (3, 0), (-1, 7))),
    "offsets beyond the end": seen(offsets=((0, 0), (9, 0), (3, 0), (0, 0))),
    "offsets of other dims": seen(offsets=((0,), (0, 0, 0), (), ())),
    "no full value": seen(full=()),
    "a full value of each": seen(full=(WHOLE, SCALAR, WHOLE, WHOLE)),
    "a full value of another dtype": seen(full=(SCALAR,)),
    "a scalar": seen(SCALAR, Layout(())),
    "an empty array": seen(pack(np.zeros((0, 3), np.int64))),
    "a dtype that NumPy lacks": seen(
        full=(Array("int4", (3, 2), b"123456"),), dtype="int4", shards=None
    ),
    "plan": Observed("y", "bfloat16", (64, 64), S0, local=(32, 64)),
    "a scalar's plan": Observed("y", "bfloat16", (), Layout(()), local=()),
    "a mesh of strange axes": seen(mesh=Mesh((("a b", 2), ("c=", 2)), (0, 1, 2, 3))),
    "words": seen(disagreements=("rank 1: x3", ""), note="#c2d09fb54e01 x4"),
    "collectives": seen(
        collectives=(GATHER, GATHER, Collective("all-reduce", (), 4, 0, "update", True), GATHER),
        full_collectives=(Collective("broadcast", ("a", "b"), 4, 7, "backward"),),
    ),
    "collectives on strange axes": seen(
        collectives=(GATHER, GATHER, Collective("gather", ("a b", ","), 2, 1))
    ),
}


@pytest.mark.parametrize("odd", ODD)
def test_nothing_seen_is_lost(odd: str) -> None:
    """However odd, and whatever stands for it."""
    answer = Answer("q", "t", Done(), (ODD[odd],))
    assert back([answer]) == (answer,)


ENDS: list[End] = [
    Done(),
    Refused("E", "a: b\nc", "y"),
    Refused("torch._C.E", "", ""),
    Refused("E", "line", "a: E: b"),
    Refused("E of two words", "line", "y"),
    Unsupported("why: not"),
    Unsupported("why", "y: z"),
    Unsupported("at y: why"),
    Unsupported("", "y"),
    Crashed("SIGABRT", 3, "said"),
    Hung("why", "y", "raised", ("stack", "")),
]


@pytest.mark.parametrize("end", ENDS)
def test_no_end_is_lost(end: End) -> None:
    """Alone, and with all else that an answer can hold."""
    full = Answer("q", "t", end, (seen(),), (GATHER,), ("a complaint",), ("rank 1: x2",), 12)
    bare = Answer("q", "u", end)
    assert back([bare, full]) == (bare, full)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array(3.0), "3.0"),
        (np.array([[0, 1], [2, -3]], np.int8), "[[0,1],[2,-3]]"),
        (np.array([True, False]), "[true,false]"),
        (np.float32([0.1, 1 / 3, 1e30, -0.0]), "[0.1,0.33333334,1e+30,-0.0]"),
        (np.array([0.1, 2**-14], np.float16), "[0.099975586,6.1035156e-05]"),
        (np.array([0.1, 3], ml_dtypes.bfloat16), "[0.100097656,3.0]"),
        (np.array([np.nan, np.inf, -np.inf]), "[NaN,Infinity,-Infinity]"),
        (np.array([2**63], np.uint64), ""),  # Not a dtype of cases.
        (np.zeros((2, 0), np.float32), "[[],[]]"),
        (np.arange(20), ""),
        (np.zeros(21), ""),
        (np.array([1j]), ""),
    ],
)  # fmt: skip
def test_small_arrays_are_said_in_full(array: np.ndarray, text: str) -> None:  # type: ignore[type-arg]
    """With the fewest digits that are enough, and read to the bit; others not at all."""
    packed = pack(array)
    assert format_array(packed) == text
    if text:
        assert parse_array(text, packed.dtype) == packed


def test_a_nan_of_strange_bits_is_kept_by_its_bytes() -> None:
    """No text of it would give them back."""
    strange = pack(np.array([NAN], np.float32))
    assert strange.data == b"\x01\x00\xc0\x7f"
    answer = Answer("q", "t", Done(), (Observed("y", "float32", (1,), full=(strange,)),))
    assert str(said(answer)["t"]["seen"]["y"]["full"]).startswith("#")  # type: ignore[index]
    (read,) = back([answer])
    assert read["y"].full[0].data == strange.data


@pytest.mark.parametrize(
    "texts", [["a"], ["a", "a"], ["a", "b", "a", "a", "a"], ["-"] * 512, [], ["()", "0,1"]]
)
def test_runs_of_equal_texts_are_said_once(texts: list[str]) -> None:
    """And read back."""
    short = group_runs(texts)
    assert expand_runs(short) == texts
    assert len(short) <= 3


def test_arrays_are_kept_once_and_in_one_order() -> None:
    """Whatever the order in which they came."""
    one, other = ArrayStore(), ArrayStore()
    arrays = [pack(np.full(30, i, np.float32)) for i in range(5)]
    for array in arrays * 2:
        one.put(array)
    for array in reversed(arrays):
        other.put(array)
    assert one.content() == other.content()
    assert one.content().count(arrays[3].data) == 1


def test_what_a_reference_names_differs_in_dtype_shape_or_bytes() -> None:
    """Each of the three makes another."""
    array = Array("float32", (2, 3), bytes(24))
    others = [Array("int32", (2, 3), bytes(24)), Array("float32", (3, 2), bytes(24)),
              Array("float32", (2, 3), bytes(23) + b"\x01")]  # fmt: skip
    put = ArrayStore()
    assert len({put.put(one) for one in [array, *others]}) == 4


def test_two_of_one_name_or_subject_are_not_written() -> None:
    """Of two, a JSON object would keep one."""
    twice = Answer("q", "t", Done(), (seen(), seen()))
    with pytest.raises(ValueError, match="t saw two things of one name in q"):
        encode([twice], MESH, ArrayStore())
    with pytest.raises(ValueError, match="two answers of t to q"):
        encode([Answer("q", "t", Done())] * 2, MESH, ArrayStore())


@pytest.mark.parametrize(
    ("text", "keys", "found"),
    [
        ("[]", "", "no answers (Expected `object`, got `array`)"),
        ('{"t": 3}', "", "no answers (Expected `str | object`, got `int` - at `$[...]`)"),
        ('{"t": "fine"}', "t.end", "'fine'"),
        ('{"t": "as u"}', "t", "'as u'"),
        ('{"t": {"end": "refused at y"}}', "t.end", "'refused at y'"),
        ('{"t": {"ended": "done"}}', "", "no answers (Object contains unknown field `ended`"),
        ('{"t": {"program": ["all-gather a 2 8"]}}', "t.program", "('all-gather a 2 8',)"),
    ],
)
def test_a_bad_text_is_refused(text: str, keys: str, found: str) -> None:
    """By where in it, and what is there."""
    with pytest.raises(UnreadableAnswer) as error:
        decode(msgspec.Raw(text.encode()), "q", MESH, ArrayStore())
    assert ".".join(error.value.keys) == keys
    assert error.value.found.startswith(found)


@pytest.mark.parametrize(
    ("fields", "key", "found"),
    [
        ('"type":"float32[5;8]"', "type", "'float32[5;8]'"),
        ('"type":"i4[]","layout":"P(a"', "layout", "'P(a'"),
        ('"type":"i4[]","layout":"P((a))"', "layout", "'P((a))'"),
        ('"type":"i4[]","mesh":"a=2,b=2"', "mesh", "'a=2,b=2'"),
        ('"type":"i4[]","full":"#0123456789ab"', "full", "'#0123456789ab'"),
        ('"type":"int32[]","full":"2.5"', "full", "'2.5'"),
        ('"type":"int32[]","full":"3000000000"', "full", "'3000000000'"),
        ('"type":"float32[]","full":"1e+39"', "full", "'1e+39'"),
        ('"type":"bool[]","full":"[\\"a\\"]"', "full", "'[\"a\"]'"),
        ('"type":"int32[]","full":"{}"', "full", "'{}'"),
        ('"type":"int32[]","full":"NaN"', "full", "'NaN'"),
        ('"type":"int32[]","full":"99999999999999999999"', "full", "'99999999999999999999'"),
        ('"type":"int32[]","full":"[[1],2]"', "full", "'[[1],2]'"),
        ('"type":"int32[]","full":"[1"', "full", "'[1'"),
        ('"type":"i4[]","full":"1"', "full", "'1'"),
        ('"type":"i4[]","shards":"#0123456789ab"', "shards", "'#0123456789ab'"),
        ('"type":"int32[]","shards":["-","1","x"]', "shards", "'x'"),
        ('"type":"i4[]","offsets":["0,0","0;1"]', "offsets", "('0,0', '0;1')"),
        ('"type":"i4[]","collectives":["a 2 8B"]', "collectives", "('a 2 8B',)"),
        (
            '"type":"i4[]","full_collectives":["all-go a 2 8B"]',
            "full_collectives",
            "('all-go a 2 8B',)",
        ),
    ],
)
def test_a_bad_field_is_refused(fields: str, key: str, found: str) -> None:
    """By subject, name and key."""
    text = msgspec.Raw(b'{"t":{"seen":{"y":{%b}}}}' % fields.encode())
    with pytest.raises(UnreadableAnswer) as error:
        decode(text, "q", MESH, ArrayStore())
    assert error.value.keys == ("t", "seen", "y", key)
    assert error.value.found == found
    assert error.value.wanted


def test_the_shards_of_these_tests_are_uneven_and_empty() -> None:
    """So that what is left out is put to the test."""
    held = index_ranges(mesh({"a": 4, "b": 2}), Layout((("a",), ())), WHOLE.shape)
    assert {local_shape(one)[0] for one in held} == {2, 1, 0}
