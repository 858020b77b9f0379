"""What a file of cases means once it is loaded: both forms, defaults, spreads and shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adapters.reference.evaluate import evaluate
from cases.arrays import pack, unpack
from cases.catalogue import FILES
from cases.errors import BadInput
from cases.layout import index_ranges
from cases.load import check_unique, load
from cases.model import Case, Layout, Mesh, Question, Recipe, mesh, slug
from cases.program import TensorType, infer_types

CORPUS = FILES["public"]
PUBLIC = [case for path in sorted(CORPUS.glob("*.json")) for case in json.loads(path.read_text())]

EXAMPLE = """
[[case]]
id = "row-parallel-owes-a-reduction"
source = "https://example.org/1"
mesh = { dp = 2, tp = 2 }
program = [
  "y = matmul(x, w)",
  "z = redistribute(y, dp=S(0), tp=R)",
  "l = sum(z * z)",
]
check = ["y", "z", "l"]

[case.inputs]
x = { shape = [8, 4], placements = { dp = "S(0)", tp = "S(1)" } }
w = { shape = [4, 6], spec = "P('tp', None)" }
"""


def _load(tmp_path: Path, text: str, suffix: str = ".toml") -> Case:
    file = tmp_path / f"cases{suffix}"
    file.write_text(text)
    (case,) = load(file)
    return case


def _case(tmp_path: Path, *lines: str, on: str = "{ x = 4 }") -> Case:
    return _load(tmp_path, "\n".join(['[[case]]\nid = "a"', f"mesh = {on}", *lines]))


def _array(given: object) -> list[Any]:
    assert given is not None
    return unpack(given).tolist()  # type: ignore[arg-type, no-any-return]


def test_the_example_loads_as_it_is_written(tmp_path: Path) -> None:
    """Placements, PartitionSpecs, steps and signs mean what the design says of them."""
    case = _load(tmp_path, EXAMPLE)
    question = case.question
    assert (case.family, case.file) == ("cases", str(tmp_path / "cases.toml"))
    assert question.mesh == mesh({"dp": 2, "tp": 2})
    x, w = question.inputs
    assert x.layout == Layout((("dp",), ("tp",)))
    assert w.layout == Layout((("tp",), ()))
    assert (x.dtype, _array(x.value)) == ("float32", np.arange(32.0).reshape(8, 4).tolist())
    assert [(s.result, s.op, s.args) for s in question.steps] == [
        ("y", "matmul", ("x", "w")),
        ("z", "redistribute", ("y",)),
        ("l_1", "multiply", ("z", "z")),
        ("l", "sum", ("l_1",)),
    ]
    assert question.steps[1].to == Layout((("dp",), ()))
    assert question.check == ("y", "z", "l")


def test_json_and_toml_make_one_and_the_same_question(tmp_path: Path) -> None:
    """The JSON form and the TOML form of a case differ in nothing but the file."""
    toml = _load(tmp_path, EXAMPLE)
    raw = {
        "id": "row-parallel-owes-a-reduction",
        "source": "https://example.org/1",
        "mesh": {"dp": 2, "tp": 2},
        "inputs": {
            "x": {"shape": [8, 4], "dtype": "float32", "values": "arange",
                  "placements": ["S(0)", "S(1)"]},
            "w": {"shape": [4, 6], "dtype": "float32", "values": "arange",
                  "placements": ["R", "S(0)"]},
        },
        "program": [
            ["y", "matmul", ["x", "w"], {}],
            ["z", "redistribute", ["y"], {"placements": ["S(0)", "R"]}],
            ["l_1", "multiply", ["z", "z"], {}],
            ["l", "sum", ["l_1"], {}],
        ],
        "check": ["y", "z", "l"],
        "seen": {"some release": "whatever"},
    }  # fmt: skip
    assert _load(tmp_path, json.dumps([raw]), ".json").question == toml.question


def test_a_question_survives_the_way_to_a_worker(tmp_path: Path) -> None:
    """A loaded question is the same once it has been sent as JSON."""
    question = _load(tmp_path, EXAMPLE).question
    assert msgspec.json.decode(msgspec.json.encode(question), type=Question) == question


@pytest.mark.parametrize("raw", PUBLIC, ids=lambda raw: slug(raw["id"]))
def test_the_whole_form_of_public_cases_parses(raw: dict[str, Any], tmp_path: Path) -> None:
    """Every public case loads as it stands."""
    case = _load(tmp_path, json.dumps([raw]), ".json")
    assert case.id == raw["id"]
    # What is said of a name beside those listed has it checked as well.
    said = {name for key in ("shards", "offsets") for name in raw.get(key, {})}
    assert {*case.question.check} == {*raw["check"], *said}
    assert case.question.mesh.shape == tuple(raw["mesh"].values())
    assert set(case.expectation.right) == set(raw.get("right", {}))
    assert case.expectation.sufficient == raw.get("sufficient")


def test_the_right_values_of_public_cases_are_those_of_the_reference(tmp_path: Path) -> None:
    """What a public report calls right is what NumPy makes of the loaded question."""
    held = 0
    for raw in PUBLIC:
        case = _load(tmp_path, json.dumps([raw]), ".json")
        values = evaluate(case.question)
        for name, right in case.expectation.right.items():
            # Stated in as many decimals as the report gives.
            np.testing.assert_allclose(
                values[name], unpack(right), rtol=1e-5, atol=1e-4, err_msg=case.id
            )
            held += 1
    assert held >= 80


def test_what_is_listed_per_device_stands_by_device_number(tmp_path: Path) -> None:
    """On devices 3, 2, 1, 0 the first shard listed is device 0's, which is at the last position."""
    case = _case(
        tmp_path,
        "devices = [3, 2, 1, 0]",
        'inputs.x = { shape = [5], placements = ["S(0)"] }',
        "shards.x = [[], [4], [2, 3], [0, 1]]",
        "offsets.x = [[5], [4], [2], [0]]",
    )
    shards = case.expectation.shards["x"]
    assert [_array(shard) for shard in shards] == [[0, 1], [2, 3], [4], []]
    assert case.expectation.offsets["x"] == ((0,), (2,), (4,), (5,))
    assert [shard.shape for shard in shards] == [(2,), (2,), (1,), (0,)]


def test_local_arrays_of_an_input_stand_by_mesh_position(tmp_path: Path) -> None:
    """On devices 3, 2, 1, 0 the first local array of an input is device 3's."""
    case = _case(
        tmp_path,
        "devices = [3, 2, 1, 0]",
        'inputs.x = { shape = [5], placements = ["S(0)"], per_device = [[0, 1], [2, 3], [4], []] }',
    )
    (x,) = case.question.inputs
    assert x.value is None
    assert [_array(one) for one in x.per_device or ()] == [[0, 1], [2, 3], [4], []]


def test_an_input_has_its_own_device_order(tmp_path: Path) -> None:
    """``devices`` of an input make a mesh of its own with the same axes."""
    case = _case(tmp_path, 'inputs.x = { shape = [4], spec = "P()", devices = [0, 2, 1, 3] }')
    assert case.question.inputs[0].mesh == Mesh((("x", 4),), (0, 2, 1, 3))


@pytest.mark.parametrize(
    ("lines", "check"),
    [
        (['program = ["y = sum(x * x)", "z = -y"]'], ("y", "z")),
        ([], ("x",)),
        (['program = ["y = sum(x)"]', 'check = ["x", "y"]'], ("x", "y")),
    ],
)
def test_what_counts_is_every_named_result_else_every_input(
    lines: list[str], check: tuple[str, ...], tmp_path: Path
) -> None:
    """Without ``check``: all results that have a name of their own; without a program, inputs."""
    case = _case(tmp_path, 'inputs.x = { shape = [4], spec = "P()" }', *lines)
    assert case.question.check == check


def test_a_case_that_derives_a_mesh_or_keeps_state_is_fresh(tmp_path: Path) -> None:
    """``fresh`` follows from mesh steps and the tag state, unless it is said."""
    x = 'inputs.x = { shape = [4], spec = "P()" }'
    steps = 'mesh_steps = [["m", "mesh_unflatten", ["x"], { axes = { a = 2, b = 2 } }]]'
    assert not _case(tmp_path, x).question.fresh
    assert _case(tmp_path, x, steps).question.fresh
    assert _case(tmp_path, x, 'tags = ["state"]').question.fresh
    assert not _case(tmp_path, x, steps, "fresh = false").question.fresh


def test_steps_take_every_form_of_number_and_parameter(tmp_path: Path) -> None:
    """Numbers keep their types; true, false, none and tuples are parameters; signs are ops."""
    case = _case(
        tmp_path,
        'inputs.x = { shape = [4, 2], spec = "P()" }',
        "program = [",
        '  "a = sum(x, axis=(0, -1), keepdims=true)",',
        '  "b = add(x, -10)",',
        '  "c = 2.5 * x",',
        '  "d = (x + 1) / -x - b",',
        "  \"e = einsum(x, x, subscripts='ij,kj->ik')\",",
        '  ["f", "subtract", [10, "b"]],',
        '  "g = sum(x, axis=none)",',
        "]",
    )
    steps = {step.result: step for step in case.question.steps}
    assert steps["a"].params == {"axis": [0, -1], "keepdims": True}
    assert repr(steps["b"].args) == "('x', -10)"
    assert repr(steps["c"].args) == "(2.5, 'x')"
    assert [(s.op, s.args) for s in case.question.steps if s.result.startswith("d")] == [
        ("add", ("x", 1)),
        ("negative", ("x",)),
        ("divide", ("d_1", "d_2")),
        ("subtract", ("d_3", "b")),
    ]
    assert steps["e"].params == {"subscripts": "ij,kj->ik"}
    assert repr(steps["f"].args) == "(10, 'b')"
    assert steps["g"].params == {"axis": None}


@pytest.mark.parametrize(
    "step",
    [
        "y = redistribute(x, a=S(1), b=S(-1))",
        "y = redistribute(x, P(None, ('a', 'b')))",
        "y = redistribute(x, PartitionSpec(None, ('a', 'b')))",
        "y = redistribute(x, [S(1), S(1)])",
        "y = redistribute(x, a='S(1)', b=S(1))",
    ],
)
def test_a_layout_is_asked_for_in_any_notation(step: str, tmp_path: Path) -> None:
    """By axis, as a PartitionSpec or in a list, a step asks for one and the same layout."""
    x = 'inputs.x = { shape = [4, 4], spec = "P()" }'
    case = _case(tmp_path, x, f'program = ["{step}"]', on="{ a = 2, b = 2 }")
    assert case.question.steps[0].to == Layout(((), ("a", "b")))


@pytest.mark.parametrize(
    "asked",
    [
        '["S(0)", "P(avg)"]',
        '{ a = "S(0)", b = "P(avg)" }',
        '{ placements = { a = "S(0)", b = "P(avg)" } }',
        '{ placements = ["S(0)", "P(avg)"] }',
    ],
)
def test_a_result_is_asked_for_in_any_notation(asked: str, tmp_path: Path) -> None:
    """``to`` and ``layouts`` take a list or a table of placements, as it is or named."""
    lines = [
        'inputs.x = { shape = [4, 4], spec = "P()" }',
        'program = ["y = identity(x)"]',
        f"to.y = {asked}",
        f"layouts.y = {asked}",
    ]
    case = _case(tmp_path, *lines, on="{ a = 2, b = 2 }")
    wanted = Layout((("a",), ()), (("b", "avg"),))
    assert case.question.steps[0].to == wanted
    assert case.expectation.layouts == {"y": wanted}


def test_values_are_lists_numbers_or_arange(tmp_path: Path) -> None:
    """Nested lists, one number for every element, complex parts, and 0, 1, 2 … by default."""
    inputs = {
        "a": ("", [[0, 1], [2, 3]]),
        "b": ("values = 7", [[7, 7], [7, 7]]),
        "c": ("values = [[1, 2.5], [-inf, 4]]", [[1, 2.5], [-np.inf, 4]]),
        "d": ('dtype = "bool", values = [[1, 0], [true, false]]', [[True, False], [True, False]]),
        "e": (
            'dtype = "complex64", values = { real = [[1, 2], [3, 4]], imag = [[0, 0], [inf, -1]] }',
            [[1, 2], [complex(3, np.inf), 4 - 1j]],
        ),
        "f": ('dtype = "uint8", values = "arange"', [[0, 1], [2, 3]]),
    }
    lines = [
        f'inputs.{name} = {{ shape = [2, 2], spec = "P()"{", " if given else ""}{given} }}'
        for name, (given, _) in inputs.items()
    ]
    case = _case(tmp_path, *lines)
    for one, (_, wanted) in zip(case.question.inputs, inputs.values(), strict=True):
        assert _array(one.value) == wanted


def test_shards_that_break_the_chunk_rule_are_kept_as_they_are(tmp_path: Path) -> None:
    """A declared shape makes an input irregular: its shards have whatever sizes they have."""
    x = (
        'inputs.x = { declared_shape = [6, 2], placements = ["S(0)"], '
        "per_device = [[[1, 2], [3, 4], [5, 6]], [], [[7, 8]], [[9, 9]]] }"
    )
    (given,) = _case(tmp_path, x).question.inputs
    assert given.irregular
    assert given.shape == (6, 2)
    assert [one.shape for one in given.per_device or ()] == [(3, 2), (0, 2), (1, 2), (1, 2)]


def test_the_older_word_for_a_dry_run_is_read(tmp_path: Path) -> None:
    """Files of earlier releases say ``mode = "plan"``: it is the same question."""
    asked = ['inputs.x = { shape = [4], spec = "P()" }']
    old, new = (_case(tmp_path, f'mode = "{word}"', *asked) for word in ("plan", "dry run"))
    assert old.question == new.question


def test_a_dry_run_has_shapes_but_no_data(tmp_path: Path) -> None:
    """In a dry run sizes may be huge: shapes are known at once, and nothing is allocated."""
    case = _case(
        tmp_path,
        'mode = "dry run"',
        'inputs.x = { shape = [1048576, 65536], dtype = "bfloat16", spec = "P(\'x\')" }',
        'inputs.w = { shape = [65536, 262144], dtype = "bfloat16", spec = "P()" }',
        'program = ["y = matmul(x, w)", "z = sum(y, axis=0)", "r = redistribute(z, P(\'x\'))"]',
        on="{ x = 4096 }",
    )
    assert all(given.value is None and given.per_device is None for given in case.question.inputs)
    assert infer_types(case.question)["y"] == TensorType((1048576, 262144), "bfloat16")
    assert infer_types(case.question)["r"] == TensorType((262144,), "bfloat16")


def test_a_partial_input_gets_its_addends_on_loading(tmp_path: Path) -> None:
    """Values of a partial input become per-device arrays that the reference makes whole again."""
    x = 'inputs.x = { shape = [5, 2], placements = { a = "P(sum)", b = "S(0)" } }'
    case = _case(tmp_path, x, on="{ a = 2, b = 2 }")
    (given,) = case.question.inputs
    assert given.value is None
    assert [one.shape for one in given.per_device or ()] == [(3, 2), (2, 2), (3, 2), (2, 2)]
    assert evaluate(case.question)["x"].tolist() == np.arange(10).reshape(5, 2).tolist()


def test_a_folder_is_read_in_the_order_of_its_paths(tmp_path: Path) -> None:
    """All .toml and .json files of a folder and its folders, and nothing else, in path order."""
    case = '[[case]]\nid = "{}"\nmesh = {{ x = 1 }}\ninputs.x = {{ shape = [], spec = "P()" }}\n'
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.toml").write_text(case.format("two") + case.format("one"))
    (tmp_path / "sub" / "c.toml").write_text(case.format("three"))
    (tmp_path / "a.json").write_text(
        '[{"id": "zero", "mesh": {"x": 1}, "inputs": {"x": {"shape": [], "placements": ["R"]}}}]'
    )
    (tmp_path / "README.md").write_text("no case")
    loaded = load(tmp_path)
    assert [case.id for case in loaded] == ["zero", "two", "one", "three"]
    assert [case.family for case in loaded] == ["a", "b", "b", "c"]


def test_ids_must_differ_across_everything_loaded(tmp_path: Path) -> None:
    """Two files may not share an id, nor two ids that read alike in test ids."""
    one = _load(tmp_path, EXAMPLE)
    check_unique([one])
    for id in (one.id, one.id.upper(), one.id.replace("-", "/")):
        question = msgspec.structs.replace(one.question, id=id)
        other = msgspec.structs.replace(one, question=question)
        with pytest.raises(BadInput, match="wanted a unique"):
            check_unique([one, other])


def test_a_recipe_stands_in_place_of_a_program(tmp_path: Path) -> None:
    """It is kept by name and sizes; what is said of its tensors and passes is read as elsewhere."""
    path = tmp_path / "cases.toml"
    path.write_text(
        '[[case]]\nid = "a"\nmesh = { tp = 2 }\n'
        'recipe = { name = "mlp-tp", sizes = { hidden = 4 } }\n'
        'layouts."up.weight" = { tp = "S(0)" }\ncounts.forward = { all-reduce = 1 }\n'
    )
    (case,) = load(path)
    assert case.question.recipe == Recipe("mlp-tp", {"hidden": 4})
    assert {"up.weight", "out", "loss", "grad/x", "plain/new/down.bias"} < {*case.question.check}
    assert case.expectation.counts == {"forward": {"all-reduce": 1}}
    assert case.expectation.layouts == {"up.weight": Layout((("tp",), ()))}


def test_what_is_said_of_a_case_is_kept(tmp_path: Path) -> None:
    """Dates as TOML has them, tags, tolerance as a number or a table, counts, and the rest."""
    case = _case(
        tmp_path,
        'inputs.x = { shape = [4], placements = ["S(0)"] }',
        'program = ["y = sum(x)"]',
        "date = 2025-09-17",
        'source = "https://example.org/2"',
        'kind = "value"',
        'tags = ["lesson", "slow"]',
        'insensitive = "all zeros"',
        'context = "loss_parallel"',
        "tolerance = 1e-5",
        "sufficient = {}",
        'counts = { y = { all-reduce = 1 }, "y/full" = {} }',
        "right = { y = 6 }",
    )
    assert (case.date, case.kind, case.insensitive) == ("2025-09-17", "value", "all zeros")
    assert case.tags == {"lesson", "slow"}
    assert case.question.context == "loss_parallel"
    expected = case.expectation
    assert expected.tolerance is not None
    assert (expected.tolerance.rtol, expected.tolerance.atol) == (1e-5, 1e-5)
    assert expected.sufficient == {}
    assert expected.counts == {"y": {"all-reduce": 1}, "y/full": {}}
    assert expected.right["y"] == pack(np.asarray(6, np.float32))


def test_uneven_chunks_fix_the_shapes_of_local_arrays(tmp_path: Path) -> None:
    """Local arrays of nested uneven splits must have the sizes that chunking chunks gives."""
    x = 'inputs.x = { shape = [6], placements = ["S(0)", "S(0)"], per_device = PER }'
    good = "[[0, 1], [2], [3, 4], [5]]"
    case = _case(tmp_path, x.replace("PER", good), on="{ a = 2, b = 2 }")
    held = index_ranges(case.question.mesh, case.question.inputs[0].layout, (6,))
    assert [stop - start for ((start, stop),) in held] == [2, 1, 2, 1]
    with pytest.raises(BadInput, match=r"per_device\[1\]: found a list of 2, wanted a list of 1"):
        _case(tmp_path, x.replace("PER", "[[0, 1], [2, 3], [4], [5]]"), on="{ a = 2, b = 2 }")


def test_loading_needs_no_framework() -> None:
    """Cases and ledgers load with neither torch, jax nor pytest in the process."""
    code = (
        "import sys, cases.load, cases.ledger; "
        "print(*[name for name in ('torch', 'jax', 'pytest') if name in sys.modules])"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=True)
    assert done.stdout.decode().strip() == ""


@pytest.mark.parametrize(
    ("program", "shape"),
    [
        ("y = softmax(x, axis=-1)", (64, 8192, 128256)),
        ("y = rms_norm(x, g)", (64, 8192, 128256)),
        ("y = sort(x, axis=-1)", (64, 8192, 128256)),
        ("y = linear(x, w)", (64, 8192, 28672)),
        ("y = embedding(i, w)", (64, 8192, 128256)),
        ("y = dropout(x, p=0.5, seed=1)", (64, 8192, 128256)),
    ],
)
def test_a_planned_program_of_any_size_is_read_without_data(
    tmp_path: Path, program: str, shape: tuple[int, ...]
) -> None:
    """Shapes of results are learnt from small stand-ins, in milliseconds."""
    path = tmp_path / "cases.toml"
    path.write_text(
        '[[case]]\nid = "a"\nmode = "dry run"\nmesh = { dp = 64, tp = 8 }\n'
        f'program = ["{program}"]\n'
        'inputs.x = { shape = [64, 8192, 128256], spec = "P()" }\n'
        'inputs.g = { shape = [128256], spec = "P()" }\n'
        'inputs.w = { shape = [28672, 128256], spec = "P()" }\n'
        'inputs.i = { shape = [64, 8192], dtype = "int64", spec = "P()" }\n'
    )
    (case,) = load(path)
    assert infer_types(case.question)["y"].shape == shape


def test_a_shape_that_takes_gigabytes_to_learn_is_refused(tmp_path: Path) -> None:
    """In one line, rather than by running out of memory."""
    path = tmp_path / "cases.toml"
    path.write_text(
        '[[case]]\nid = "a"\nmode = "dry run"\nmesh = { tp = 8 }\n'
        'program = ["y = topk_values(x, k=2, axis=-1)"]\n'
        'inputs.x = { shape = [64, 8192, 128256], spec = "P()" }\n'
    )
    with pytest.raises(BadInput, match=r"67,243,081,728 elements, more than 16,777,216"):
        load(path)
