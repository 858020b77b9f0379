"""What is each tensor of a case called, on which mesh is it, and which layout has it to have?

Static facts that the aspects share; looks at no answer.
"""

from __future__ import annotations

from cases.ledger import Aspect
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Case, Layout, Mesh
from cases.recipes import recipe_of, sizes_of
from cases.recipes.layouts import tensor_layouts

# The names of a recipe's unsharded step begin with this.
UNSHARDED = "plain/"
# The name of a materialised input or result ends with this.
FULL = "/full"


def result_name(step: str | None) -> str:
    """The name inside "y/full"; "" for the whole program."""
    return (step or "").removesuffix(FULL)


def mesh_of(case: Case, name: str) -> Mesh:
    """The mesh of an input or result, by whose positions its shards are listed."""
    return meshes_of_tensors(case.question).get(name, case.question.mesh)


def mesh_names(case: Case) -> frozenset[str]:
    """The results of mesh steps, which have an aspect of their own."""
    return frozenset(step.result for step in case.question.mesh_steps)


def value_aspect(case: Case, step: str | None) -> Aspect:
    """The aspect that judges a value: "gradients" of a gradient, else "global"."""
    name = result_name(step)
    if case.question.recipe is not None:
        return "gradients" if "grad/" in name else "global"
    grads = {one.result for one in case.question.steps if one.op == "grad"}
    return "gradients" if name in grads else "global"


def requested_layouts(case: Case) -> dict[str, Layout]:
    """By name, the layout that the case asks for or states, or that its parallel plan has."""
    question = case.question
    if question.recipe is not None:
        found = dict(tensor_layouts(recipe_of(question), sizes_of(question), question.mesh))
        return found | case.expectation.layouts
    found = {given.name: given.layout for given in question.inputs}
    found |= {step.result: step.to for step in question.steps if step.to is not None}
    return found | case.expectation.layouts


def upstream(case: Case, step: str | None) -> frozenset[str]:
    """A step with all that it is made of; for the whole program or a recipe, everything."""
    question, name = case.question, result_name(step)
    made = {one.result: one.operands for one in question.steps}
    everything = frozenset((*made, *(given.name for given in question.inputs), *question.check))
    if question.recipe is not None or (name not in made and name not in everything):
        return everything
    found, waiting = set[str](), [name]
    while waiting:
        this = waiting.pop()
        found.add(this)
        waiting += [name for name in made.get(this, ()) if name not in found]
    return frozenset(found)
