"""How does plain torch show a fault? By a script that starts its own ranks, or runs under torchrun.

The lines that make meshes, inputs and steps are those of the adapter. torch is only text here.
"""

from __future__ import annotations

from adapters.torch_dtensor.names import format_imports
from adapters.torch_dtensor.rank_messages import InputData, Line, Task
from adapters.torch_dtensor.source_lines import (
    CONTEXTS,
    assignment_line,
    mesh_source,
    placements_source,
)
from adapters.torch_dtensor.task_lines import make_task
from adapters.unsupported import CannotAnswer
from cases.model import Case, Mesh
from cases.notation import NotationError
from cases.ops import OPS
from reports.array_source import array_expression, indexed_expression, replace_by_ones
from reports.faults import Fault, NoScript, needs_values
from reports.script_head import (
    allclose_arguments,
    check_names,
    count_test,
    format_slices,
    indent_lines,
    script_comment,
    shown_value,
    standard_imports,
    tolerance_comment,
    used_imports,
)
from reports.templates import render

_IMPORT_DIST = "import torch.distributed as dist"
_KINDS = "allgather|allreduce|reducescatter|alltoall|broadcast|scatter|gather|send"
# The variables of a script itself.
_RESERVED = {"rank", "wanted", "got", "same", "whole", "comm", "counts", "names", "kinds", "dist"}


def script(case: Case, fault: Fault, release: str) -> str:
    """The text of the script, as a release of torch runs it.

    Raises:
        NoScript: the adapter has no lines for the question, or a name is in the way.
    """
    try:
        asked = make_task(case.question)
    except CannotAnswer as error:
        raise NoScript(error.why) from None
    count = asked.world_size
    check = _check_function(case, fault, asked)
    # A pool keeps its processes when one of them raises.
    tail = render("torch_ranks.py", count=count, hangs=fault.observed == "hung")
    body = "\n".join([*check, tail])
    first, *rest = format_imports(release)
    needed = used_imports((first, _IMPORT_DIST, *rest), body)
    run = f"python FILE, or torchrun --nproc-per-node={count} FILE"
    return "\n".join([
        *script_comment(case, fault, run), standard_imports(body), *needed, "", *check, tail,
    ])  # fmt: skip


def _check_function(case: Case, fault: Fault, asked: Task) -> list[str]:
    """The function that runs the program on one rank, and gives same, wanted and got."""
    before, watched = _program_lines(case, fault, asked)
    made = (*asked.derived, *(data.line for data in asked.inputs), *asked.steps)
    check_names({one.variable for one in made}, _RESERVED)
    if fault.check in ("counts", "total"):
        watched = ["with CommDebugMode() as comm:", *(f"    {one}" for one in watched)]
    region = CONTEXTS.get(asked.context)
    if region and watched:
        watched = [f"with {region}:", *(f"    {one}" for one in watched)]
    lines = [*before, *watched, *_check_lines(fault, asked)]
    return ["def check(rank):", *indent_lines(lines, 4)]


def _program_lines(case: Case, fault: Fault, asked: Task) -> tuple[list[str], list[str]]:
    """The lines that come first, and the lines whose collectives are counted."""
    # A result may fail to materialise only because a later step has used it.
    whole = fault.step is None or _must_run_to_end(fault) or (fault.check == "ends" and fault.full)
    whole = whole or _in_place_later(case, fault.step or "")
    names = [one.name for one in asked.steps]
    upto = len(names) if whole or fault.step not in names else names.index(fault.step) + 1
    if fault.step in {data.line.name for data in asked.inputs} and not whole:
        upto = 0
    steps = asked.steps[:upto]
    # Every rank makes each mesh of devices, even if it is not in it.
    before = [f"{name} = {mesh_source(mesh)}" for name, mesh in asked.meshes]
    derived = [assignment_line(one.variable, one.source) for one in asked.late("")]
    if fault.check == "refusal":
        derived[-1:] = ["try:", f"    {derived[-1]}", "except Exception as error:",
                        "    return True, 'a refusal', repr(error)[:300]"]  # fmt: skip
    before += derived
    for data in asked.inputs:
        before += _input_lines(data, asked, needs_values(case.question, fault))
        before += _assignment_lines(data.line, asked)
        if upto == 0 and data.line.name == fault.step:
            break
    last = [one for made in steps[-1:] for one in _assignment_lines(made, asked)]
    rest = [one for made in steps[:-1] for one in _assignment_lines(made, asked)]
    if asked.context or fault.step is None:
        # A region holds all steps, and so does a count of the whole program.
        last, rest = rest + last, []
    if fault.check in ("counts", "total") and fault.step is not None and fault.full:
        return [*before, *rest, *last], [f"{_variable(fault, asked)}.full_tensor()"]
    return [*before, *rest], last


def _must_run_to_end(fault: Fault) -> bool:
    """Whether the program must run to its end, since other ranks may have passed the step."""
    return fault.observed in ("hung", "crashed")


def _in_place_later(case: Case, step: str) -> bool:
    """Whether a later step writes into a tensor, so that the whole program matters."""
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
    each = indexed_expression(arrays, "torch", at) if data.per_device else ""
    return [assignment_line(data.line.name, each or array_expression(arrays[0], "torch"))]


def _position_source(devices: tuple[int, ...], asked: Task) -> str:
    """The expression of this rank's position in a mesh; 0 where it is not in it."""
    if devices == tuple(range(asked.world_size)):
        return "rank"
    if len(devices) == asked.world_size:
        return f"{list(devices)}.index(rank)"
    return f"{ {device: at for at, device in enumerate(devices)} }.get(rank, 0)"


def _check_lines(fault: Fault, asked: Task) -> list[str]:
    """The lines that compare what came with what is right."""
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
            slices = format_slices(fault.shard_ranges)
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


def _placements(fault: Fault) -> str:
    assert fault.layout is not None
    try:
        return placements_source(fault.layout, fault.mesh)
    except NotationError as error:
        raise NoScript(str(error)) from None


def _outside_mesh_lines(mesh: Mesh, asked: Task) -> list[str]:
    if set(mesh.devices) == set(range(asked.world_size)):
        return []
    return [f"if rank not in {list(mesh.devices)}:", "    return True, 'nothing', 'nothing'"]


def _equality_lines(fault: Fault) -> list[str]:
    alike = "(got.dtype, got.shape) == (wanted.dtype, wanted.shape)"
    close = "torch.equal(got, wanted)"
    if not fault.exact:
        sides = f"got.to(torch.{fault.wide}), wanted.to(torch.{fault.wide})"
        close = f"torch.allclose({sides}, {allclose_arguments(fault.allowed)})"
    shown = ", ".join(shown_value(fault, one) for one in ("wanted", "got"))
    return [
        *tolerance_comment(fault.allowed),
        f"same = {alike} and {close}",
        f"return same, {shown}",
    ]


def _count_lines(fault: Fault) -> list[str]:
    # CommDebugMode's names of ops contain the kind, with and without underscores.
    forms = [{kind.replace("-", ""): n for kind, n in one.items()} for one in fault.counts]
    wanted, test = count_test(fault.check, forms)
    return [
        "counts = comm.get_comm_counts().items()",
        "names = [str(op).replace('_', '') for op, n in counts for _ in range(n)]",
        f"kinds = {_KINDS!r}",
        "got = dict(collections.Counter(re.search(kinds, name)[0] for name in names))",
        f"wanted = {forms[0]}",
        f"return {test}, {wanted}, got",
    ]
