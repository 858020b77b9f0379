"""How does plain JAX show a fault? A script on as many CPU devices as the meshes need.

The lines that make meshes, inputs and steps are those of the adapter, for a release of JAX.
Knows no jax: it is text here.
"""

from __future__ import annotations

from adapters.answer import Unsupported, format_end
from adapters.jax_xla import source_lines
from adapters.jax_xla.mesh_lines import joined_function
from adapters.jax_xla.names import NAMES, OPTIONS, require, respell_line
from adapters.jax_xla.names import format_imports as imported
from adapters.jax_xla.source_lines import Route
from adapters.release_names import find_location
from adapters.unsupported import CannotAnswer
from cases.arrays import unpack
from cases.mesh_derivation import meshes_of_tensors
from cases.model import Case, Question
from cases.notation import NotationError, to_spec
from reports.array_source import array_expression, first_and_shifts, replace_by_ones
from reports.faults import Fault, NoScript, needs_values
from reports.script_head import (
    allclose_arguments,
    indent_lines,
    script_comment,
    tolerance_comment,
    used_imports,
)

_STANDARD = ("import base64", "import collections", "import os", "import re", "import sys",
             "import zlib")  # fmt: skip
_KINDS = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"
# Merges all-reduces late, and counts are of what the partitioner put in.
_OFF, _PASS = "xla_disable_hlo_passes", "cpu-all-reduce-combiner"
# What a script calls its own things.
_RESERVED = {"wanted", "got", "same", "whole", "text", "kinds", "program", "spots", "error"}


def script(case: Case, fault: Fault, release: str) -> str:
    """The text of the script, as a release of JAX runs it.

    Raises:
        NoScript: JAX has no such layout, the release no such op, or a name is in the way.
    """
    question = case.question
    made = (*question.inputs, *question.steps)
    names = {
        source_lines.variable_name(getattr(one, "name", getattr(one, "result", ""))) for one in made
    }
    names |= {*source_lines.view_variables(question).values()}
    if taken := sorted(names & _RESERVED):
        raise NoScript(f"the case has the name {taken[0]}, which the script needs")
    route: Route = "jit" if fault.verdict.subject == "jax/jit" else "explicit"
    try:
        meshes = [
            source_lines.mesh_line(mesh, name, route, release)
            for mesh, name in source_lines.mesh_variables(question).items()
        ]
        derived = _mesh_step_lines(question, fault, route, release)
        if any("joined(" in text for text in derived):
            meshes += joined_function(release).strip().split("\n")
        program = derived + _input_lines(question, fault, route, release)
        program += (_jit_lines if route == "jit" else _explicit_lines)(question, fault, release)
        program += _check_lines(case, fault, route, release)
        program = [respell_line(line, release) for line in program]
    except CannotAnswer as error:
        raise NoScript(format_end(Unsupported(error.why, error.place))) from None
    except NotationError as error:
        raise NoScript(str(error)) from None
    body = [
        *indent_lines(meshes, 0),
        *(["print('wanted an answer, got this:', flush=True)"] if _crashes(fault) else []),
        "try:",
        *indent_lines(program, 4),
        "except Exception as error:",
        f"    same, wanted, got = {_on_error(fault)}, repr(error)[:300]",
        "print(f'wanted {wanted}\\ngot    {got}')",
        "sys.exit(not same)",
    ]
    text = "\n".join(body)
    standard = used_imports(_STANDARD, text + "\nos.environ")
    return "\n".join([
        *script_comment(case, fault, "python FILE"),
        "import " + ", ".join(one.removeprefix("import ") for one in standard),
        "os.environ['JAX_PLATFORMS'] = 'cpu'",
        f"os.environ['XLA_FLAGS'] = '{_flags(question, fault, release)}'",
        *used_imports(imported(release), text + "\njax"),
        "",
        "jax.config.update('jax_enable_x64', True)",
        *body,
    ]) + "\n"  # fmt: skip


def _on_error(fault: Fault) -> str:
    return "True, 'a refusal'" if fault.check == "refusal" else "False, 'an answer'"


def _flags(question: Question, fault: Fault, release: str) -> str:
    found = f"--xla_force_host_platform_device_count={_devices(question)}"
    if fault.check in ("counts", "total") and find_location(OPTIONS, _OFF, release) is None:
        found += f" --{_OFF}={_PASS}"
    return found


def _compile_call(release: str) -> str:
    """How a lowered program is compiled whose collectives are counted."""
    known = find_location(OPTIONS, _OFF, release) is not None
    return f".compile({{{_OFF!r}: {_PASS!r}}})" if known else ".compile()"


def _devices(question: Question) -> int:
    meshes = [question.mesh, *(given.mesh for given in question.inputs if given.mesh)]
    return max(max(mesh.devices) for mesh in meshes) + 1


def _mesh_step_lines(question: Question, fault: Fault, route: Route, release: str) -> list[str]:
    """The lines of the mesh steps, up to the one at fault."""
    found = []
    for name, text in source_lines.view_sources(question, source_lines.KINDS[route], release):
        found.append(f"{source_lines.variable_name(name)} = {text}")
        if name == (fault.step or "").partition("/")[0]:
            break
    return found


def _crashes(fault: Fault) -> bool:
    return fault.observed == "crashed"


def _input_lines(question: Question, fault: Fault, route: Route, release: str) -> list[str]:
    """The lines that place the inputs, up to the one at fault."""
    if fault.check == "mesh" or fault.step in source_lines.view_variables(question):
        return []
    places, on = source_lines.mesh_texts(question), meshes_of_tensors(question)
    found = []
    for given in question.inputs:
        arrays = source_lines.input_arrays(given, route == "jit")
        shown = arrays if needs_values(question, fault) else replace_by_ones(arrays)
        if given.per_device is None:
            data = array_expression(shown[0], "np")
        elif (moved := first_and_shifts(shown, "np")) is not None:
            data = f"[{moved[0]} + n for n in {moved[1]}]"
        else:
            data = f"[{', '.join(array_expression(one, 'np') for one in shown)}]"
        stack = route == "jit"
        home = on[given.name]
        found.append(source_lines.input_line(given, home, places[given.name], stack, data, release))
        if given.name == fault.step:
            break
    return found


def _jit_lines(question: Question, fault: Fault, release: str) -> list[str]:
    """The whole program as one, which gives what the case checks."""
    placed = {*source_lines.view_variables(question), *(given.name for given in question.inputs)}
    if fault.step in placed or not question.steps:
        return []
    inside = [one for given in question.inputs for one in source_lines.reduce_lines(given)]
    for step in question.steps:
        inside += source_lines.step_lines(question, step, "jit", release)
    results = [step.result for step in question.steps if step.result in question.check]
    given = ", ".join(source_lines.variable_name(one.name) for one in question.inputs)
    out = ", ".join(map(source_lines.variable_name, results))
    head = ["@jax.jit", f"def program({given}):", *(f"    {one}" for one in inside),
            f"    return {out}"]  # fmt: skip
    if not question.inputs and (
        find_location(NAMES, "jax.set_mesh", release)
        or all(step.to is None for step in question.steps)
    ):
        # What has no operand lies on the mesh in force.
        head = ["jax.set_mesh(mesh)", *head]
    if fault.check in ("counts", "total"):
        return [*head, f"text = program.lower({given}){_compile_call(release)}.as_text()"]
    return [*head, f"{out} = program({given})"]


def _explicit_lines(question: Question, fault: Fault, release: str) -> list[str]:
    """Each step in a program of its own, up to the one at fault."""
    found: list[str] = []
    placed = {*source_lines.view_variables(question), *(given.name for given in question.inputs)}
    if fault.step in placed:
        return found
    counted = fault.check in ("counts", "total")
    if counted and fault.step is None:
        raise NoScript("counts of several programs together")
    places, there = source_lines.mesh_texts(question), ""
    for step in question.steps:
        last = step.result == fault.step
        if places[step.result] != there:
            # As the adapter compiles each step: what has no operand lies on the mesh in force.
            there = places[step.result]
            found.append(f"jax.set_mesh({there})")
        if last and counted and step.op == "grad":
            raise NoScript("what a gradient fires beside the forward ops that run with it")
        *inside, line = source_lines.step_lines(question, step, "explicit", release)
        names = ", ".join(map(source_lines.variable_name, source_lines.names_used(question, step)))
        name, _, value = line.partition(" = ")
        program = f"lambda {names}: {value}" if names else f"lambda: {value}"
        if inside:
            found += [f"def program({names}):", *(f"    {one}" for one in (*inside, line)),
                      f"    return {name}"]  # fmt: skip
            program = "program"  # a gradient's function has lines of its own
        if last and counted and not fault.full:
            found += [f"program = jax.jit({program})",
                      f"text = program.lower({names}){_compile_call(release)}.as_text()"]  # fmt: skip
        else:
            found.append(f"{name} = jax.jit({program})({names})")
        if last:
            break
    return found


def _check_lines(case: Case, fault: Fault, route: Route, release: str) -> list[str]:
    """The lines that hold what came against what is right."""
    y = source_lines.variable_name(fault.step or "")
    mesh = source_lines.mesh_texts(case.question).get(fault.step or "", "mesh")
    whole = f"NamedSharding({mesh}, P())"
    gather = f"jax.jit(lambda {y}: jax.sharding.reshard({y}, {whole}))"
    full = f"np.asarray({y if route == 'jit' else f'{gather}({y})'})"
    match fault.check:
        case "ends":
            end = [full] if fault.full else []
            if _crashes(fault) and route == "explicit":
                # Whether it died in a step or in what was done with its result is not known.
                names = [source_lines.variable_name(one) for one in case.question.check]
                end = [
                    f"for one in ({', '.join(names)},):",
                    f"    jax.jit(lambda one: jax.sharding.reshard(one, {whole}))(one)",
                ]
            return [*end, "same, wanted, got = True, 'an answer', 'an answer'"]
        case "counts" | "total":
            lower = f"text = program.lower({y}){_compile_call(release)}.as_text()"
            return [*([f"program = {gather}", lower] if fault.full else []), *_count_lines(fault)]
        case "full":
            wanted = array_expression(fault.arrays[0], "np")
            return [f"wanted, got = {wanted}, {full}", *_equality_lines(fault, "wanted", "got"),
                    f"wanted, got = {_shown_value(fault, 'wanted')}, {_shown_value(fault, 'got')}"]  # fmt: skip
        case "layout":
            assert fault.layout is not None
            spec = to_spec(fault.layout)
            if fault.layout.partial:
                require("PartitionSpec.unreduced", release)
                # An Auto mesh has no sharding that owes anything to compare with.
                return [f"wanted, got = {spec}, {y}.sharding.spec", "same = got == wanted"]
            return [
                f"wanted, got = NamedSharding({mesh}, {spec}), {y}.sharding",
                f"same = got.is_equivalent_to(wanted, {y}.ndim){_nothing_unreduced(release)}",
                "wanted, got = wanted.spec, got.spec",
            ]
        case "refusal":
            # What is refused ends the script, which then has what it wants.
            return [f"same, wanted, got = False, 'a refusal', {y}"]
        case "mesh" if fault.arrays[0].dtype == "bool":
            right = bool(unpack(fault.arrays[0]))
            return [f"same, wanted, got = {y} == {right}, {right}, {y}"]
        case "mesh":
            raise NoScript("what a device sees of a slice, which in JAX is the whole mesh")
    spots = f"list({mesh}.devices.flat)"
    if mesh not in source_lines.mesh_variables(case.question).values():
        spots = f"[jax.devices()[n] for n in {list(fault.mesh.devices)}]"
    return [
        f"spots = {spots}",
        f"got = sorted({y}.addressable_shards, key=lambda one: spots.index(one.device))",
        *_shard_lines(fault, full),
    ]


def _nothing_unreduced(release: str) -> str:
    known = find_location(NAMES, "PartitionSpec.unreduced", release) is not None
    return " and not got.spec.unreduced" if known else ""


def _shard_lines(fault: Fault, full: str) -> list[str]:
    """Device by device, in the order of the mesh."""
    if fault.check == "offsets":
        return [
            "got = [tuple(index.start or 0 for index in one.index) for one in got]",
            f"wanted = {list(fault.offsets)}",
            "same = all(one in (None, other) for one, other in zip(wanted, got))",
        ]
    found = ["got = [np.asarray(one.data) for one in got]"]
    if fault.check == "shards":
        found.append(f"wanted = [{', '.join(array_expression(one, 'np') for one in fault.arrays)}]")
    else:
        slices = ", ".join(
            f"({''.join(f'slice({start}, {stop}), ' for start, stop in spans)})"
            for spans in fault.shard_ranges
        )
        # Sound or not: each shard against the slice of the same array's own global value.
        found += [f"whole = {full}", f"wanted = [whole[spans] for spans in [{slices}]]"]
    return [
        *found, *_equality_lines(fault, "one", "other", "all", " for one, other in zip(wanted, got))"),
        f"wanted, got = ([{_shown_value(fault, 'one')} for one in all_] for all_ in (wanted, got))",
    ]  # fmt: skip


def _equality_lines(
    fault: Fault, one: str, other: str, every: str = "", pairs: str = ""
) -> list[str]:
    close = f"np.array_equal({other}, {one})"
    if not fault.exact:
        wide = "np.complex128" if fault.dtype.startswith("complex") else "np.float64"
        close = f"np.allclose({other}.astype({wide}), {one}.astype({wide}), {allclose_arguments(fault.allowed)})"
    alike = f"({other}.dtype, {other}.shape) == ({one}.dtype, {one}.shape)"
    text = f"{alike} and {close}"
    return [
        *tolerance_comment(fault.allowed),
        f"same = {f'{every}({text}{pairs}' if every else text}",
    ]


def _shown_value(fault: Fault, name: str) -> str:
    return (
        f"({name}.dtype, {name}.shape, {name}.tolist())"
        if fault.differs_in_shape
        else f"{name}.tolist()"
    )


def _count_lines(fault: Fault) -> list[str]:
    forms = fault.counts
    told, test = [], "got == wanted"
    if len(forms) > 1:
        told = ["wanted = f'{wanted}, or as it is lowered'"]
        test = f"got in (wanted, *{list(forms[1:])})"
    if fault.check == "total":
        test = "sum(got.values()) <= sum(wanted.values())"
    return [
        f"kinds = {_KINDS!r}",
        r"got = dict(collections.Counter(re.findall(rf' ({kinds})(?:-start)?\(', text)))",
        f"wanted = {forms[0]}",
        f"same = {test}",
        *told,
    ]
