"""How does plain JAX show a fault? By a script on as many CPU devices as the meshes need.

The lines that make meshes, inputs and steps are those of the adapter, for a release of JAX. JAX is
only text here.
"""

from __future__ import annotations

from adapters.answer import Unsupported, format_end
from adapters.jax_xla import source_lines as lines
from adapters.jax_xla.mesh_lines import joined_function
from adapters.jax_xla.names import NAMES, OPTIONS, format_imports, require, respell_line
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

_KINDS = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"
# This pass merges all-reduces after the partitioner, whose collectives are counted.
_OFF, _PASS = "xla_disable_hlo_passes", "cpu-all-reduce-combiner"
# The variables of a script itself.
_RESERVED = {"wanted", "got", "same", "whole", "text", "kinds", "program", "spots", "error"}


def script(case: Case, fault: Fault, release: str) -> str:
    """The text of the script, as a release of JAX runs it.

    Raises:
        NoScript: JAX has no such layout, the release no such op, or a name is in the way.
    """
    question = case.question
    made = [one.name for one in question.inputs] + [one.result for one in question.steps]
    variables = {*map(lines.variable_name, made), *lines.view_variables(question).values()}
    check_names(variables, _RESERVED)
    route: Route = "jit" if fault.verdict.subject == "jax/jit" else "explicit"
    try:
        meshes = [
            lines.mesh_line(mesh, name, route, release)
            for mesh, name in lines.mesh_variables(question).items()
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
    return "\n".join([
        *script_comment(case, fault, "python FILE"),
        standard_imports(text + "\nos.environ"),
        "os.environ['JAX_PLATFORMS'] = 'cpu'",
        f"os.environ['XLA_FLAGS'] = '{_flags(question, fault, release)}'",
        *used_imports(format_imports(release), text + "\njax"),
        "",
        "jax.config.update('jax_enable_x64', True)",
        *body,
    ]) + "\n"  # fmt: skip


def _on_error(fault: Fault) -> str:
    return "True, 'a refusal'" if fault.check == "refusal" else "False, 'an answer'"


def _flags(question: Question, fault: Fault, release: str) -> str:
    found = f"--xla_force_host_platform_device_count={question.devices}"
    if fault.check in ("counts", "total") and find_location(OPTIONS, _OFF, release) is None:
        found += f" --{_OFF}={_PASS}"
    return found


def _compile_call(release: str) -> str:
    """The call that compiles a lowered program whose collectives are counted."""
    known = find_location(OPTIONS, _OFF, release) is not None
    return f".compile({{{_OFF!r}: {_PASS!r}}})" if known else ".compile()"


def _mesh_step_lines(question: Question, fault: Fault, route: Route, release: str) -> list[str]:
    """The lines of the mesh steps, up to the one at fault."""
    found = []
    for name, text in lines.view_sources(question, lines.KINDS[route], release):
        found.append(f"{lines.variable_name(name)} = {text}")
        if name == (fault.step or "").partition("/")[0]:
            break
    return found


def _crashes(fault: Fault) -> bool:
    return fault.observed == "crashed"


def _input_lines(question: Question, fault: Fault, route: Route, release: str) -> list[str]:
    """The lines that place the inputs, up to the one at fault."""
    if fault.check == "mesh" or fault.step in lines.view_variables(question):
        return []
    places, on = lines.mesh_texts(question), meshes_of_tensors(question)
    found = []
    for given in question.inputs:
        arrays = lines.input_arrays(given, route == "jit")
        shown = arrays if needs_values(question, fault) else replace_by_ones(arrays)
        if given.per_device is None:
            data = array_expression(shown[0], "np")
        elif (moved := first_and_shifts(shown, "np")) is not None:
            data = f"[{moved[0]} + n for n in {moved[1]}]"
        else:
            data = f"[{', '.join(array_expression(one, 'np') for one in shown)}]"
        stack = route == "jit"
        home = on[given.name]
        found.append(lines.input_line(given, home, places[given.name], stack, data, release))
        if given.name == fault.step:
            break
    return found


def _jit_lines(question: Question, fault: Fault, release: str) -> list[str]:
    """The whole program as one, which gives what the case checks."""
    placed = {*lines.view_variables(question), *(given.name for given in question.inputs)}
    if fault.step in placed or not question.steps:
        return []
    inside = [one for given in question.inputs for one in lines.reduce_lines(given)]
    for step in question.steps:
        inside += lines.step_lines(question, step, "jit", release)
    results = [step.result for step in question.steps if step.result in question.check]
    given = ", ".join(lines.variable_name(one.name) for one in question.inputs)
    out = ", ".join(map(lines.variable_name, results))
    head = ["@jax.jit", f"def program({given}):", *(f"    {one}" for one in inside),
            f"    return {out}"]  # fmt: skip
    if not question.inputs and (
        find_location(NAMES, "jax.set_mesh", release)
        or all(step.to is None for step in question.steps)
    ):
        # A result without operands lies on the mesh that is set.
        head = ["jax.set_mesh(mesh)", *head]
    if fault.check in ("counts", "total"):
        return [*head, f"text = program.lower({given}){_compile_call(release)}.as_text()"]
    return [*head, f"{out} = program({given})"]


def _explicit_lines(question: Question, fault: Fault, release: str) -> list[str]:
    """Each step in a program of its own, up to the one at fault."""
    found: list[str] = []
    placed = {*lines.view_variables(question), *(given.name for given in question.inputs)}
    if fault.step in placed:
        return found
    counted = fault.check in ("counts", "total")
    if counted and fault.step is None:
        raise NoScript("the counts are those of several programs together")
    places, there = lines.mesh_texts(question), ""
    for step in question.steps:
        last = step.result == fault.step
        if places[step.result] != there:
            # As in the adapter: a result without operands lies on the mesh that is set.
            there = places[step.result]
            found.append(f"jax.set_mesh({there})")
        if last and counted and step.op == "grad":
            raise NoScript("a gradient's collectives are mixed with those of its forward ops")
        *inside, line = lines.step_lines(question, step, "explicit", release)
        names = ", ".join(map(lines.variable_name, lines.names_used(question, step)))
        name, _, value = line.partition(" = ")
        program = f"lambda {names}: {value}" if names else f"lambda: {value}"
        if inside:
            found += [f"def program({names}):", *(f"    {one}" for one in (*inside, line)),
                      f"    return {name}"]  # fmt: skip
            program = "program"  # a gradient's function has lines of its own
        if last and counted and not fault.full:
            text = f"program.lower({names}){_compile_call(release)}.as_text()"
            found += [f"program = jax.jit({program})", f"text = {text}"]
        else:
            found.append(f"{name} = jax.jit({program})({names})")
        if last:
            break
    return found


def _check_lines(case: Case, fault: Fault, route: Route, release: str) -> list[str]:
    """The lines that compare what came with what is right."""
    y = lines.variable_name(fault.step or "")
    mesh = lines.mesh_texts(case.question).get(fault.step or "", "mesh")
    whole = f"NamedSharding({mesh}, P())"
    gather = f"jax.jit(lambda {y}: jax.sharding.reshard({y}, {whole}))"
    full = f"np.asarray({y if route == 'jit' else f'{gather}({y})'})"
    match fault.check:
        case "ends":
            end = [full] if fault.full else []
            if _crashes(fault) and route == "explicit":
                # It is unknown whether a step crashed, or the use of its result.
                names = [lines.variable_name(one) for one in case.question.check]
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
            shown = ", ".join(shown_value(fault, one) for one in ("wanted", "got"))
            return [
                f"wanted, got = {wanted}, {full}",
                *tolerance_comment(fault.allowed),
                f"same = {_equality(fault, 'wanted', 'got')}",
                f"wanted, got = {shown}",
            ]
        case "layout":
            assert fault.layout is not None
            spec = to_spec(fault.layout)
            if fault.layout.partial:
                require("PartitionSpec.unreduced", release)
                # No sharding on an Auto mesh is unreduced, so specs are compared.
                return [f"wanted, got = {spec}, {y}.sharding.spec", "same = got == wanted"]
            return [
                f"wanted, got = NamedSharding({mesh}, {spec}), {y}.sharding",
                f"same = got.is_equivalent_to(wanted, {y}.ndim){_nothing_unreduced(release)}",
                "wanted, got = wanted.spec, got.spec",
            ]
        case "refusal":
            # A refusal would have raised before this line.
            return [f"same, wanted, got = False, 'a refusal', {y}"]
        case "mesh" if fault.arrays[0].dtype == "bool":
            right = bool(unpack(fault.arrays[0]))
            return [f"same, wanted, got = {y} == {right}, {right}, {y}"]
        case "mesh":
            raise NoScript("in JAX a device sees the whole mesh, and not its own slice")
    spots = f"list({mesh}.devices.flat)"
    if mesh not in lines.mesh_variables(case.question).values():
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
        # Each shard must be the slice of the same array's own global value, right or wrong.
        slices = format_slices(fault.shard_ranges)
        found += [f"whole = {full}", f"wanted = [whole[spans] for spans in [{slices}]]"]
    shown = shown_value(fault, "one")
    return [
        *found,
        *tolerance_comment(fault.allowed),
        f"same = all({_equality(fault, 'one', 'other')} for one, other in zip(wanted, got))",
        f"wanted, got = ([{shown} for one in all_] for all_ in (wanted, got))",
    ]


def _equality(fault: Fault, one: str, other: str) -> str:
    alike = f"({other}.dtype, {other}.shape) == ({one}.dtype, {one}.shape)"
    if fault.exact:
        return f"{alike} and np.array_equal({other}, {one})"
    sides = f"{other}.astype(np.{fault.wide}), {one}.astype(np.{fault.wide})"
    return f"{alike} and np.allclose({sides}, {allclose_arguments(fault.allowed)})"


def _count_lines(fault: Fault) -> list[str]:
    wanted, test = count_test(fault.check, fault.counts)
    return [
        f"kinds = {_KINDS!r}",
        r"got = dict(collections.Counter(re.findall(rf' ({kinds})(?:-start)?\(', text)))",
        f"wanted = {fault.counts[0]}",
        f"same = {test}",
        *([f"wanted = {wanted}"] if wanted != "wanted" else []),
    ]
