"""How does plain torch show a fault? A script that starts its own ranks, or is run by torchrun.

The lines that make meshes, inputs and steps are those of the adapter. Knows no torch: it is
text here.
"""

from __future__ import annotations

from adapters.torch_dtensor.names import format_imports as imported
from adapters.torch_dtensor.rank_messages import InputData, Line, Task
from adapters.torch_dtensor.source_lines import (
    CONTEXTS,
    assignment_line,
    mesh_source,
    placements_source,
)
from adapters.torch_dtensor.task_lines import count_ranks, make_task
from adapters.unsupported import CannotAnswer
from cases.model import Case, Mesh
from cases.notation import NotationError
from cases.ops import OPS
from reports.array_source import array_expression, indexed_expression, replace_by_ones
from reports.faults import Fault, NoScript, needs_values
from reports.script_head import (
    allclose_arguments,
    indent_lines,
    script_comment,
    tolerance_comment,
    used_imports,
)

_STANDARD = (
    "import base64",
    "import collections",
    "import os",
    "import re",
    "import sys",
    "import tempfile",
    "import time",
    "import zlib",
)
_IMPORT_DIST = "import torch.distributed as dist"
_KINDS = "allgather|allreduce|reducescatter|alltoall|broadcast|scatter|gather|send"
# What a script calls its own things.
_RESERVED = {"rank", "wanted", "got", "same", "whole", "comm", "counts", "names", "kinds", "dist"}
# Seconds until ranks that are known to hang are given up, and any others.
_SECONDS, _PATIENCE = 20, 120


def script(case: Case, fault: Fault, release: str) -> str:
    """The text of the script, as a release of torch runs it.

    Raises:
        NoScript: the adapter has no lines for the question, or a name is in the way.
    """
    try:
        asked = make_task(case.question)
    except CannotAnswer as error:
        raise NoScript(error.why) from None
    count = count_ranks(asked)
    check = _check_function(case, fault, asked)
    tail = _main_lines(count, fault.observed == "hung")
    body = "\n".join([*check, *tail])
    top = used_imports(_STANDARD, body)
    first, *rest = imported(release)
    needed = used_imports((first, _IMPORT_DIST, *rest), body)
    run = f"python FILE, or torchrun --nproc-per-node={count} FILE"
    lines = [*script_comment(case, fault, run), *_join_imports(top), *needed, "", *check, *tail]
    return "\n".join(lines) + "\n"


def _join_imports(modules: list[str]) -> list[str]:
    return ["import " + ", ".join(one.removeprefix("import ") for one in modules)]


def _check_function(case: Case, fault: Fault, asked: Task) -> list[str]:
    """The function that runs the program on one rank, and gives same, wanted and got."""
    before, watched, after = _program_lines(case, fault, asked)
    made = (*asked.derived, *(data.line for data in asked.inputs), *asked.steps)
    names = {one.variable for one in made}
    if taken := sorted(names & _RESERVED):
        raise NoScript(f"the case has the name {taken[0]}, which the script needs")
    if fault.check == "counts" or fault.check == "total":
        watched = ["with CommDebugMode() as comm:", *(f"    {one}" for one in watched)]
    region = CONTEXTS.get(asked.context)
    if region and watched:
        watched = [f"with {region}:", *(f"    {one}" for one in watched)]
    return [
        "def check(rank):",
        *indent_lines(before, 4),
        *indent_lines(watched, 4),
        *indent_lines(after, 4),
        *indent_lines(_check_lines(fault, asked), 4),
    ]


def _program_lines(case: Case, fault: Fault, asked: Task) -> tuple[list[str], list[str], list[str]]:
    """Lines that make everything, lines of the steps that count, lines after the program."""
    # What materialising a result meets, it may meet only because a later step has used the result.
    whole = fault.step is None or _must_run_to_end(fault) or (fault.check == "ends" and fault.full)
    whole = whole or _in_place_later(case, fault.step or "")
    names = [one.name for one in asked.steps]
    upto = len(names) if whole or fault.step not in names else names.index(fault.step) + 1
    if fault.step in {data.line.name for data in asked.inputs} and not whole:
        upto = 0
    steps = asked.steps[:upto]
    # Meshes that stand on devices are made by every rank, in or out of them.
    before = [f"{name} = {mesh_source(mesh)}" for name, mesh in asked.meshes]
    derived = [assignment_line(one.variable, one.source) for one in asked.late("")]
    if fault.check == "refusal":
        derived[-1:] = ["try:", f"    {derived[-1]}", "except Exception as error:",
                        "    return True, 'a refusal', repr(error)[:300]"]  # fmt: skip
    before += derived
    for data in asked.inputs:
        before += [
            *_input_lines(data, asked, needs_values(case.question, fault)),
            *_assignment_lines(data.line, asked),
        ]
        if upto == 0 and data.line.name == fault.step:
            break
    last = [one for made in steps[-1:] for one in _assignment_lines(made, asked)]
    rest = [one for made in steps[:-1] for one in _assignment_lines(made, asked)]
    if asked.context or fault.step is None:
        # A region holds all steps, and so does a count of the whole program.
        last, rest = rest + last, []
    if fault.check in ("counts", "total") and fault.step is not None and fault.full:
        return [*before, *rest, *last], [f"{_variable(fault, asked)}.full_tensor()"], []
    return [*before, *rest], last, []


def _must_run_to_end(fault: Fault) -> bool:
    """Whether the program has to run to its end: others may have gone on from the step at fault."""
    return fault.observed in ("hung", "crashed")


def _in_place_later(case: Case, step: str) -> bool:
    """Whether a later step writes into what is there already, so that it matters to the end."""
    names = [one.result for one in case.question.steps]
    later = case.question.steps[names.index(step) + 1 :] if step in names else case.question.steps
    return any(OPS[one.op].family == "inplace" for one in later)


def _assignment_lines(made: Line, asked: Task) -> list[str]:
    own = [] if made.source == made.variable else [assignment_line(made.variable, made.source)]
    return own + [assignment_line(one.variable, one.source) for one in asked.late(made.name)]


def _variable(fault: Fault, asked: Task) -> str:
    made = (*(data.line for data in asked.inputs), *asked.steps, *asked.derived)
    return next(one.variable for one in made if one.name == fault.step)


def _input_lines(data: InputData, asked: Task, exact: bool) -> list[str]:
    arrays = data.arrays if exact else replace_by_ones(data.arrays)
    devices = dict(asked.meshes).get(data.where, asked.mesh).devices
    at = _position_source(devices, asked)
    value = (
        indexed_expression(arrays, "torch", at)
        if data.per_device
        else array_expression(arrays[0], "torch")
    )
    return [assignment_line(data.line.name, value)]


def _position_source(devices: tuple[int, ...], asked: Task) -> str:
    """The position of this rank in a mesh, as text; 0 where it is not in it."""
    if devices == tuple(range(count_ranks(asked))):
        return "rank"
    if len(devices) == count_ranks(asked):
        return f"{list(devices)}.index(rank)"
    return f"{ {device: at for at, device in enumerate(devices)} }.get(rank, 0)"


def _check_lines(fault: Fault, asked: Task) -> list[str]:
    """The lines that hold what came against what is right."""
    if fault.check == "ends":
        end = [f"{_variable(fault, asked)}.full_tensor()"] if fault.full else []
        if _must_run_to_end(fault):
            made = (*(data.line for data in asked.inputs), *asked.steps)
            checked = [one.variable for one in made if one.name in asked.check]
            end = [f"for one in ({', '.join(checked)},):", "    if isinstance(one, DTensor):",
                   "        one.full_tensor()"]  # fmt: skip
        return [*end, "return True, 'an answer', 'an answer'"]
    if fault.check in ("counts", "total"):
        return _count_lines(fault)
    if fault.check == "refusal":
        return [f"return False, 'a refusal', {_variable(fault, asked)}"]
    y, mesh = _variable(fault, asked), fault.mesh
    at = _position_source(mesh.devices, asked)
    away = _outside_mesh_lines(mesh, asked)
    local = f"{y}.to_local()" if fault.seen is None or fault.seen.layout is not None else y
    match fault.check:
        case "full":
            whole = f"{y}.full_tensor()" if fault.seen and fault.seen.layout is not None else y
            got, wanted = whole, array_expression(fault.arrays[0], "torch")
        case "shards":
            got, wanted = local, indexed_expression(fault.arrays, "torch", at)
        case "own shards":
            slices = ", ".join(_slices(spans) for spans in fault.shard_ranges)
            got = f"{y}.to_local(), {y}.full_tensor()"
            return [
                f"got, whole = {got}", *away, f"wanted = whole[[{slices}][{at}]]  # by its layout",
                *_equality_lines(fault),
            ]  # fmt: skip
        case "offsets":
            got = "compute_local_shape_and_global_offset"
            return [
                f"got = {got}({y}.shape, {y}.device_mesh, {y}.placements)[1]", *away,
                f"wanted = {list(fault.offsets)}[{at}]",
                "return wanted in (None, got), wanted, got",
            ]  # fmt: skip
        case "layout":
            got, wanted = f"list({y}.placements)", _placements(fault)
            if home := asked.home(fault.step or ""):
                got, wanted = f"({got}, {y}.device_mesh)", f"({wanted}, {home.variable})"
            return [f"got, wanted = {got}, {wanted}", "return got == wanted, wanted, got"]
        case _:
            got, wanted = _mesh_as_tensor(y, fault), indexed_expression(fault.arrays, "torch", at)
    return [f"got = {got}", *away, f"wanted = {wanted}", *_equality_lines(fault)]


def _mesh_as_tensor(y: str, fault: Fault) -> str:
    """What a rank sees of the mesh in variable ``y``, as a tensor."""
    if fault.arrays[0].dtype == "bool":
        return f"torch.tensor({y})"
    if fault.part == "coordinate":
        return f"torch.tensor({y}.get_coordinate())"
    if fault.part:
        return f"torch.tensor(dist.get_process_group_ranks({y}.get_group({fault.part!r})))"
    return f"{y}.mesh.long()"


def _slices(spans: tuple[tuple[int, int], ...]) -> str:
    return f"({''.join(f'slice({start}, {stop}), ' for start, stop in spans)})"


def _placements(fault: Fault) -> str:
    assert fault.layout is not None
    try:
        return placements_source(fault.layout, fault.mesh)
    except NotationError as error:
        raise NoScript(str(error)) from None


def _outside_mesh_lines(mesh: Mesh, asked: Task) -> list[str]:
    if set(mesh.devices) == set(range(count_ranks(asked))):
        return []
    return [f"if rank not in {list(mesh.devices)}:", "    return True, 'nothing', 'nothing'"]


def _equality_lines(fault: Fault) -> list[str]:
    alike = "(got.dtype, got.shape) == (wanted.dtype, wanted.shape)"
    close = "torch.equal(got, wanted)"
    if not fault.exact:
        # In a dtype so wide that comparing rounds nothing.
        wide = "torch.complex128" if fault.dtype.startswith("complex") else "torch.float64"
        close = f"torch.allclose(got.to({wide}), wanted.to({wide}), {allclose_arguments(fault.allowed)})"
    told = "wanted.tolist(), got.tolist()"
    if fault.differs_in_shape:
        told = ", ".join(f"({one}.dtype, {one}.shape, {one}.tolist())" for one in ("wanted", "got"))
    return [
        *tolerance_comment(fault.allowed),
        f"same = {alike} and {close}",
        f"return same, {told}",
    ]


def _count_lines(fault: Fault) -> list[str]:
    # CommDebugMode's names of ops hold the kind, with and without underscores.
    forms = [{kind.replace("-", ""): n for kind, n in one.items()} for one in fault.counts]
    told, test = "wanted", "got == wanted"
    if len(forms) > 1:
        told, test = 'f"{wanted}, or as it is lowered"', f"got in (wanted, *{forms[1:]})"
    if fault.check == "total":
        test = "sum(got.values()) <= sum(wanted.values())"
    return [
        "counts = comm.get_comm_counts().items()",
        "names = [str(op).replace('_', '') for op, n in counts for _ in range(n)]",
        f"kinds = {_KINDS!r}",
        "got = dict(collections.Counter(re.search(kinds, name)[0] for name in names))",
        f"wanted = {forms[0]}",
        f"return {test}, {told}, got",
    ]


def _main_lines(count: int, hangs: bool) -> list[str]:
    """The lines that start the ranks. A pool, since its processes stay when one of them raises."""
    wait = f"""
    end = time.time() + {_SECONDS}
    for one in asked:
        one.wait(end - time.time())
    waiting = [rank for rank in range({count}) if not asked[rank].ready()]
    if waiting:
        print(f"ranks {{waiting}} wanted an answer\\n       got    none: they wait for others")
sys.exit(bool(waiting) or not all(one.get() for one in asked))"""
    ask = f"""
    sys.exit(not all([one.get({_PATIENCE}) for one in asked]))"""
    start = f"""
def main(rank, store=None):
    store = store and dist.FileStore(store, {count})
    dist.init_process_group("gloo", store=store, rank=rank, world_size={count})
    try:
        same, wanted, got = check(rank)
    except Exception as error:
        same, wanted, got = False, "an answer", repr(error)[:300]
    print(f"rank {{rank}} wanted {{wanted}}\\n       got    {{got}}", flush=True)
    return same

if "RANK" in os.environ:
    same = main(int(os.environ["RANK"]))
    dist.destroy_process_group()
    sys.exit(not same)
context = torch.multiprocessing.get_context("fork")
with tempfile.TemporaryDirectory() as folder, context.Pool({count}) as pool:
    asked = [pool.apply_async(main, (rank, folder + "/store")) for rank in range({count})]"""
    return (start + (wait if hangs else ask)).split("\n")
