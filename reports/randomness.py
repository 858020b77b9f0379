"""Which placements draw what one device draws, and which devices share numbers? As recorded.

``python -m reports.randomness`` writes `docs/randomness.md` from the committed records; a test
checks that it is fresh. What is promised, and what the seed API takes, is told with its source.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from adapters.answer import Answer, Done, Observed, Refused
from cases.arrays import unpack
from cases.catalogue import family
from cases.layout import Ranges, index_ranges, local_shape
from cases.model import Case, Layout
from cases.notation import to_placements
from reports.judged_catalogue import ROUTES, end_word, format_frameworks
from reports.tell import recorded_answers

PAGE = Path(__file__).resolve().parent.parent / "docs" / "randomness.md"

# What is drawn, by how the id of a case begins; a draw a is held against b, of one device.
DRAWN = {
    "init-uniform": "`inplace_uniform`",
    "init-normal": "`inplace_normal`",
    "whole": "`random_uniform`, drawn whole and then split",
    "generator-philox4x32": "`random_uniform`, generator `philox4x32`",
    "generator-rbg": "`random_uniform`, generator `rbg`",
    "generator-unsafe-rbg": "`random_uniform`, generator `unsafe_rbg`",
    "seed-generator": "`inplace_uniform`, a generator of its own on each rank",
    "dropout": "`dropout`",
}
# What is asked of seeds and order, by how the id of a case begins.
ASKED = {
    "seed-twice": "the same seed gives the same numbers",
    "seed-another": "two seeds have no number in common",
    "seed-draws": "two draws from one seed have no number in common",
    "seed-mesh": "the seed is given to the mesh: the same one gives the same numbers",
    "later": "a replicated draw does not depend on the layout of an earlier one",
    "distinct-pp": "stages with seeds of their own share no number; their shards do not either",
    "distinct-x4-s0": "devices with seeds of their own share no number",
    "distinct-x4-r": "a seed for each device, of what is replicated: replicas are alike",
    "dropout-share": "a share of 1 - p is kept",
    "dropout-draws": "two masks from one seed differ",
    "dropout-gradient": "the gradient has the mask of the result",
    "dropout-x4-p": "a partial tensor is reduced first; each element is 0 or x / (1 - p)",
}

PROMISES = """\
## What is promised

**torch.** DTensor is to be programmed as if there were a single device
([documentation](https://docs.pytorch.org/docs/stable/distributed.tensor.html)). Of random numbers
`torch/distributed/tensor/_random.py` promises less, and for CUDA-like devices only: ranks that
hold the same part of a tensor draw the same numbers, ranks that hold different parts start at
different places of one stream, and all have moved on by the size of the whole tensor after it.
Parts are counted, not positions, so that the tensor is not the one that a single device draws and
changes with its layout ([168058](https://github.com/pytorch/pytorch/issues/168058), open;
[189546](https://github.com/pytorch/pytorch/pull/189546) proposes to mend it). On a CPU mesh there
is nothing of that: a warning says that support may not be complete, and each rank draws its shard
from the generator of its process
([138329](https://github.com/pytorch/pytorch/issues/138329), open). Factories
(`torch.distributed.tensor.rand`, `randn`) assert there. A random op on a partial tensor is not
defined, and refused. Seeds are the program's business: ranks are to be seeded alike, but for those
of different pipeline stages, which torchtitan seeds apart
([`set_determinism`](https://github.com/pytorch/torchtitan/blob/main/torchtitan/distributed/utils.py)).

Not run here, as it takes an accelerator, but read in 2.13.0: `exponential_`, `log_normal_`,
`geometric_` and `multinomial` have layout rules, but are not among the ops whose random state
`_dispatch.py` tracks.

**JAX.** A random array depends on its key, shape and dtype; that it is identical across shardings
is promised for every generator, unless `--xla_tpu_spmd_rng_bit_generator_unsafe` is set
([table](https://docs.jax.dev/en/latest/jax.random.html)). Since 0.5.0
`jax_threefry_partitionable` is on, and each device then makes its part with no communication
([18480](https://github.com/jax-ml/jax/discussions/18480)). Inside `shard_map` a key is a value
like any other: devices that are handed the same key draw the same, and a program folds the place
along an axis into it where they shall not.
"""

# Release, call, and what it does on a CPU mesh.
SEEDS = (
    ("torch 2.13.0", "`torch.manual_seed(seed)`",
     "seeds the generator of this process, which is what DTensor draws from"),
    ("", "`torch.distributed.tensor._random.manual_seed(seed, device_mesh)`",
     "warns and seeds nothing; `torch.distributed.tensor` exports no function that seeds"),
    ("", "`generator=` of `torch.nn.init.*` and of methods such as `uniform_`",
     "is drawn from, on each rank apart; `F.dropout` and the factories take none"),
    ("", "`torch.distributed.tensor.rand(*size, requires_grad, dtype, layout, device_mesh,"
     " placements)`, `randn`", "`AssertionError`"),
    ("", "`distribute_tensor(tensor, device_mesh, placements, *, src_data_rank=0)`",
     "deals out the tensor of rank 0; with `src_data_rank=None` each rank keeps its part of its"
     " own"),
    ("jax 0.10.2", "`jax.random.key(seed, *, impl=None, dtype=None)`",
     "a key, of `jax_default_prng_impl` (`threefry2x32`) unless `impl` says otherwise"),
    ("", "`jax.random.fold_in(key, data)`, `jax.random.split(key, num=2)`",
     "other keys; nothing has a state"),
    ("", "`jax.random.uniform(key, shape, dtype, minval, maxval, *, out_sharding=None)`, `normal`,"
     " `bits`, `bernoulli`",
     "`out_sharding` is heeded on Explicit meshes; the numbers do not depend on it"),
)  # fmt: skip


def page(answers: Callable[[Case], dict[str, Answer]] = recorded_answers) -> str:
    """The page, in Markdown; ``answers`` gives every subject's answer to a case."""
    told = {case.id: {route: answers(case)[route] for route in ROUTES} for case in family("random")}
    lines = [
        "# Random numbers under sharding",
        "",
        "Written by `python -m reports.randomness`; do not edit.",
        "",
        "Whether a parameter that is initialised, or dropped out, in a layout gets the numbers that"
        " one device would give it; whether devices that hold different parts share numbers; and"
        " what a seed is given to.",
        "",
        PROMISES,
        f"## Placements: {format_frameworks()}",
        "",
        "*as one*: the same global tensor as on one device; *other*: another. Then the devices that"
        " hold different parts and have numbers (of a dropout: the mask) in common.",
        "",
        f"| drawn | layout | {' | '.join(ROUTES)} |",
        "|---" * (len(ROUTES) + 2) + "|",
    ]
    for case in (one for one in family("random") if relation_asked(one.id) is None):
        cells = [_placement_cell(case, told[case.id][route]) for route in ROUTES]
        lines.append(f"| {op_that_draws(case.id)} | {_layout(case)} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Seeds, order and masks",
        "",
        f"| asked | layout | {' | '.join(ROUTES)} |",
        "|---" * (len(ROUTES) + 2) + "|",
    ]
    for case in (one for one in family("random") if relation_asked(one.id) is not None):
        cells = [_relation_cell(case, told[case.id][route]) for route in ROUTES]
        lines.append(f"| {relation_asked(case.id)} | {_layout(case)} | {' | '.join(cells)} |")
    lines += ["", "## What the seed API takes", ""]
    lines += ["| release | call | what it does on a CPU mesh |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in SEEDS]
    return "\n".join(lines) + "\n"


def relation_asked(id: str) -> str | None:
    """What a case asks of seeds, order or masks; None where it is about a placement."""
    return _text_by_prefix(id, ASKED)


def op_that_draws(id: str) -> str | None:
    """What a case about a placement draws."""
    return _text_by_prefix(id, DRAWN)


def _text_by_prefix(id: str, texts: dict[str, str]) -> str | None:
    heads = [head for head in texts if id.startswith(head)]
    return texts[max(heads, key=len)] if heads else None


def _layout(case: Case) -> str:
    mesh = case.question.mesh
    layout, shape = _drawn_tensor(case)
    axes = ", ".join(f"{name}={size}" for name, size in mesh.axes)
    sizes = "x".join(map(str, shape))
    return f"{sizes} as [{', '.join(to_placements(layout, mesh))}] on {axes}"


def _drawn_tensor(case: Case) -> tuple[Layout, tuple[int, ...]]:
    """Layout and shape of what is drawn first: as asked, or as its operand lies."""
    step = case.question.steps[0]
    given = next((one for one in case.question.inputs if one.name in step.args), None)
    if given is not None:
        return step.to or given.layout, given.shape
    shape = step.params["shape"]
    assert step.to is not None
    assert isinstance(shape, list)
    return step.to, tuple(int(size) for size in shape)


def _format_failure(answer: Answer) -> str:
    """How an answer ended, where it is not at its end."""
    match answer.end:
        case Done():
            return ""
        case Refused(error):
            return f"refuses: {error}"
        case _:
            return end_word(answer.end)


def _placement_cell(case: Case, answer: Answer) -> str:
    if ended := _format_failure(answer):
        return ended
    layout, shape = _drawn_tensor(case)
    seen, one = answer["a"], answer["b"]
    same = "as one" if seen.full == one.full else "other"
    held = index_ranges(case.question.mesh, layout, shape)
    parts = _parts(seen, held)
    if parts is None:
        return f"{same}, not split"
    if len(parts) == 1:
        return same
    common = list(_parts_in_common(parts, case.question.steps[0].op == "dropout"))
    if len(common) == len(list(itertools.combinations(parts, 2))):
        return f"{same}, all in common"
    pairs = ", ".join(" and ".join(map(_devices, pair)) for pair in common)
    return f"{same}, {pairs or 'none'} in common"


Parts = dict[tuple[int, ...], np.ndarray]


def _parts(seen: Observed, held: tuple[Ranges, ...]) -> Parts | None:
    """By the devices that hold it, each part of a draw; None where it is not split as asked."""
    by_range: dict[Ranges, tuple[int, ...]] = {}
    for position, spans in enumerate(held):
        by_range[spans] = (*by_range.get(spans, ()), position)
    parts: Parts = {}
    for spans, positions in by_range.items():
        shards = [(seen.shards or ())[position] for position in positions]
        if any(shard is None or shard.shape != local_shape(spans) for shard in shards):
            return None
        assert shards[0] is not None
        parts[positions] = unpack(shards[0])
    return parts


def _parts_in_common(
    parts: Parts, masks: bool
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Pairs of parts that have numbers in common; ``masks``: that are 0 at the same places."""
    for (one, left), (other, right) in itertools.combinations(parts.items(), 2):
        if masks:
            alike = left.shape == right.shape and bool(((left == 0) == (right == 0)).all())
        else:
            alike = bool(np.isin(left, right).any())
        if alike:
            yield one, other


def _devices(positions: tuple[int, ...]) -> str:
    return "+".join(map(str, positions))


def _relation_cell(case: Case, answer: Answer) -> str:
    """Whether what a case says is right of its relations is so, and whether ranks agree."""
    if ended := _format_failure(answer):
        return ended
    if any(len(set(seen.full)) > 1 for seen in answer.seen):
        return "ranks differ"
    wrong = []
    for name, right in case.expectation.right.items():
        got = unpack(answer[name].full[0])
        if not np.array_equal(got, unpack(right)):
            wrong.append(name)
    return "no" if wrong else "yes"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE}\n")
