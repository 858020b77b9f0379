"""Can an input have a name that a line uses or binds? For every line of every op.

Python's rules of scope tell the names of a line apart: those that it binds itself (arguments of a
lambda, variables of a comprehension), those that it takes from imports, and the program's own.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from adapters.jax_xla import source_lines as jax_lines
from adapters.torch_dtensor import source_lines as torch_lines
from adapters.unsupported import CannotAnswer
from cases.catalogue.operators import ONE, arguments, operands, tensors
from cases.catalogue.samples import SAMPLES
from cases.model import Layout, Question, Step
from cases.ops import OPS
from cases.program import infer_types

# Releases whose spellings differ: the oldest, and the newest.
RELEASES = ("0.4.26", jax_lines.NEWEST)
# A program's names, and its mesh's, that no line has; and what an op's operands are called.
MESH = "mesh_9"
Line = Callable[[Question, Step, str], str]


def _torch(question: Question, step: Step, mesh: str) -> str:
    return torch_lines.step_source(step, ONE, mesh, lambda: infer_types(question))


def _jax(release: str, explicit: bool) -> Line:
    def line(question: Question, step: Step, mesh: str) -> str:
        written = jax_lines.explicit_line if explicit else jax_lines.jit_line
        return written(step, mesh, release).partition(" = ")[2]

    return line


FRAMEWORKS: dict[str, tuple[Line, Callable[[str], str]]] = {
    "torch": (_torch, torch_lines.variable_name),
    **{
        f"jax-{release}-{'explicit' if explicit else 'jit'}":
            (_jax(release, explicit), jax_lines.variable_name)
        for release in RELEASES for explicit in (False, True)
    },
}  # fmt: skip


def _asked() -> Iterator[tuple[Question, Step]]:
    """Every sample of every op, and ops without samples, each with a layout asked for as well."""
    for sample in (one for samples in SAMPLES.values() for one in samples):
        inputs = operands(sample, ONE, tuple(("R",) for _ in tensors(sample)))
        step = Step("r", sample.op, arguments(sample), sample.params)
        question = Question(sample.name, ONE, inputs, (step,), ("r",))
        yield question, step
        yield question, _placed(question, step)
    x = operands(SAMPLES["pointwise"][0], ONE, (("R",), ("R",)))[:1]
    made = {"shape": [4], "value": 1, "n": 4, "seed": 1, "p": 0.5, "scale": 2}
    for op in set(OPS) - {sample.op for samples in SAMPLES.values() for sample in samples}:
        row = OPS[op]
        if op in ("grad", "item", "random_uniform", "random_normal"):
            continue  # of a program, of one element, and refused by torch
        params = {name: made[name] for name in row.required}
        step = Step("r", op, ("x",) * len(row.args), params)
        question = Question(op, ONE, x, (step,), ("r",))
        yield question, _placed(question, step)


def _placed(question: Question, step: Step) -> Step:
    ndim = len(infer_types(question)["r"].shape)
    return Step(step.result, step.op, step.args, step.params, Layout(((),) * ndim))


def _renamed(question: Question, step: Step, names: dict[str, str]) -> tuple[Question, Step]:
    """The question and the step with other names for inputs."""
    inputs = tuple(
        type(one)(names.get(one.name, one.name), one.shape, one.dtype, one.layout, one.value)
        for one in question.inputs
    )
    args = tuple(names.get(arg, arg) if isinstance(arg, str) else arg for arg in step.args)
    moved = Step(step.result, step.op, args, step.params, step.to)
    steps = (Step(step.result, step.op, args, step.params),)
    return Question(question.id, question.mesh, inputs, steps, question.check), moved


def _scoped(text: str) -> tuple[Counter[str], set[str]]:
    """The free names of an expression, with how often each occurs, and the names that it binds."""
    free, bound = Counter[str](), set[str]()

    def visit(node: ast.AST, here: frozenset[str]) -> None:
        match node:
            case ast.Name(id=name):
                if name not in here:
                    free[name] += 1
            case ast.Lambda(args=args, body=body):
                own = {one.arg for one in (*args.args, *args.kwonlyargs)}
                bound.update(own)
                visit(body, here | own)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                inner = here
                for one in node.generators:
                    visit(one.iter, inner)
                    own = {at.id for at in ast.walk(one.target) if isinstance(at, ast.Name)}
                    bound.update(own)
                    inner |= own
                    for test in one.ifs:
                        visit(test, inner)
                parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                for part in parts:
                    visit(part, inner)
            case _:
                for child in ast.iter_child_nodes(node):
                    visit(child, here)

    visit(ast.parse(text, mode="eval"), frozenset())
    return free, bound


def _plain(framework: str) -> Iterator[tuple[Question, Step, Counter[str], set[str]]]:
    """Each line with its free and bound names. Operands are called p0, p1 and so on."""
    line, _ = FRAMEWORKS[framework]
    seen = set[str]()
    for question, step in _asked():
        named = {one.name: f"p{i}" for i, one in enumerate(question.inputs)}
        asked = _renamed(question, step, named)
        try:
            text = line(*asked, MESH)
        except CannotAnswer:
            continue  # what a release or a framework has no form for
        form = re.sub(r"\b\d+\b", "", text)
        if form not in seen:
            seen.add(form)
            yield (*asked, *_scoped(text))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_name_of_a_line_captures_an_input(framework: str) -> None:
    """Each operand and the mesh get, in turn, every name that any line uses or binds."""
    line, variable = FRAMEWORKS[framework]
    told = list(_plain(framework))
    ours = {"p0", "p1", "p2", "p3", MESH}
    called = set().union(*(free for *_, free, _ in told)) - ours
    bound = set().union(*(own for *_, own in told))
    assert called & set(dir(builtins))
    assert all(name.startswith("_") and not name.endswith("_") for name in bound)
    tried = 0
    for name in sorted(called | bound | {"x", "y", "v", "slice", "list", "_y", "_of", "mesh"}):
        assert variable(name) not in called | bound, name
        for question, step, free, _ in told:
            for old in sorted(free.keys() & ours):
                wanted = Counter({variable(name) if one == old else one: times
                                  for one, times in free.items()})  # fmt: skip
                asked = _renamed(question, step, {old: name})
                text = line(*asked, variable(name) if old == MESH else MESH)
                got, _ = _scoped(text)
                assert got == wanted, (step.op, old, name, text)
                tried += 1
    assert tried > 2000


def test_two_names_never_become_one() -> None:
    """A taken name gets a "_", and so does a name that would otherwise become equal to it."""
    names = ("y", "y_", "_y", "_y_", "slice", "slice_", "slice__", "mesh", "mesh_", "if_", "x_of")
    for variable in (torch_lines.variable_name, jax_lines.variable_name):
        assert len({variable(name) for name in names}) == len(names)
