"""How is a failed case told to a person? First cause first, in both notations, with a way back.

Writes text from verdicts and answers; decides nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from adapters.answer import Answer, Crashed, End, Hung, Observed, format_end
from adapters.registry import FRAMEWORKS, framework_of
from cases.arrays import unpack
from cases.ledger import ASPECTS, Aspect
from cases.model import PASSES, Case, Input, Mesh, MeshStep, Step
from cases.notation import format_both_notations
from cases.recipes import recipe_of, sizes_of
from cases.recipes.layouts import unsharded_names
from suites.array_difference import format_array
from suites.headline import headline
from suites.judge import Judgement
from suites.observation import SEVERITIES, BrokenContract, OtherRedistributionPlan, WrongCount
from suites.ready_cause import format_ready_causes
from suites.tensors import mesh_of, result_name, upstream
from suites.verdict import RECORD, REFERENCE, Finding, Outcome, Verdict
from suites.wording import (
    describe_observation,
    format_plan_table,
    format_position,
    format_reported_layout,
    format_tolerated,
)

# A mesh picture has one line per device; more would push the text off the screen.
_MOST_DEVICES = 8
_MOST_ELEMENTS = 16
# The most lines of what is told and fails nothing, of what a crash printed, and of one rank's
# stack.
_MOST_TOLERATED = 8
_MOST_LINES = 20

# Of a result that is wrong in several aspects, the one that says most comes first.
_ASPECT_ORDER: dict[Aspect, int] = {
    "ending": 0, "global": 1, "gradients": 2, "soundness": 3, "shards": 4, "meshes": 5,
    "layout": 6, "effects": 7, "collectives": 8,
}  # fmt: skip

_INDENT = " " * 12


class FailingResult(msgspec.Struct, frozen=True):
    """One failing line with its finding, and what else is wrong with the same result."""

    verdict: Verdict
    finding: Finding
    beside: tuple[tuple[Verdict, Finding], ...] = ()


def failure_text(
    case: Case,
    judgement: Judgement,
    failing: Sequence[int],
    answers: Mapping[str, Answer],
    command: str,
    *,
    own: bool = False,
    scripts: Sequence[str] = (),
    folder: str = "",
) -> str:
    """The failure text of one case; its first line says what is wrong.

    ``failing``: the indices of the verdicts that fail it. ``command``: the pytest command that runs
    this case alone. ``own``: whether it is a user's own case. ``scripts``: file names of the
    stand-alone scripts that show it. They lie in ``folder``; if that is "", they are not written
    yet.
    """
    first, after = _sort_findings(case, judgement, failing)
    lead = first[0]
    lines = [headline(case, lead.verdict, lead.finding, answers), *_format_question(case)]
    for one in first:
        lines += ["", *_format_result(case, one, answers, judgement.verdicts)]
    lines += [*_format_consequences(after), *_format_tolerated(case, judgement, failing, own)]
    if own:
        lines += format_ready_causes(case, [(one.verdict, one.finding) for one in first], answers)
    bad = [judgement.verdicts[i] for i in failing]
    return "\n".join([*lines, "", *_format_commands(bad, command, scripts, folder)])


def _sort_findings(
    case: Case, judgement: Judgement, failing: Sequence[int]
) -> tuple[list[FailingResult], list[Verdict]]:
    """What to tell at length, gravest first; and what follows from it, in program order."""
    place = {name: number for number, name in enumerate(_program_order(case))}
    bad = [(judgement.verdicts[i], judgement.findings[i]) for i in failing]
    bad.sort(
        key=lambda pair: (
            place.get(
                result_name(pair[0].step), place.get(_mesh_of_group(pair[0].step), len(place))
            ),
            SEVERITIES.index(pair[0].severity or "free"),
            _ASPECT_ORDER.get(pair[0].aspect, len(_ASPECT_ORDER)),
        )
    )
    groups: dict[tuple[str, str], list[tuple[Verdict, Finding]]] = {}
    wrong: dict[str, set[str]] = {}
    after = []
    for verdict, finding in bad:
        name, subject = result_name(verdict.step), verdict.subject
        spoiled = wrong.setdefault(subject, set())
        if case.question.recipe is not None:
            # In a training step every tensor leads to every other: one line for each aspect is
            # enough.
            name = verdict.aspect if verdict.aspect != "collectives" else verdict.step or ""
            if verdict.aspect != "collectives" and (subject, name) in groups:
                after.append(verdict)
                continue
        elif name not in spoiled and spoiled & upstream(case, verdict.step):
            after.append(verdict)
            continue
        groups.setdefault((subject, name), []).append((verdict, finding))
        if verdict.severity in ("wrong", "refused") and verdict.against != RECORD:
            spoiled.add(name)
    first = [FailingResult(*pairs[0], tuple(pairs[1:])) for pairs in groups.values()]
    first.sort(key=lambda one: SEVERITIES.index(one.verdict.severity or "free"))
    return first, after


def _mesh_of_group(step: str | None) -> str:
    """The mesh of a group such as "m/a"."""
    return result_name(step).partition("/")[0]


def _format_question(case: Case) -> list[str]:
    question, mesh = case.question, case.question.mesh
    lines = [f"case    {case.id}" + (f"    {case.source}" if case.source else "")]
    devices = "" if mesh.devices == tuple(range(mesh.size)) else f", devices {list(mesh.devices)}"
    lines.append("mesh    " + ", ".join(f"{name}={size}" for name, size in mesh.axes) + devices)
    if question.recipe is not None:
        sizes = ", ".join(f"{name}={size}" for name, size in sizes_of(question).items())
        lines.append(f"recipe  {question.recipe.name} on {sizes}: {recipe_of(question).how}")
    lines += [f"mesh    {format_mesh_step(step)}" for step in question.mesh_steps]
    lines += [
        f"input   {_format_input(given, mesh_of(case, given.name))}" for given in question.inputs
    ]
    lines += [f"step    {format_step(step, mesh_of(case, step.result))}" for step in question.steps]
    return lines


def _program_order(case: Case) -> list[str]:
    question = case.question
    if question.recipe is not None:
        # The unsharded step comes first: what is wrong there is wrong everywhere. Then what was
        # fired: a missing reduction makes gradients wrong, and those make parameters wrong.
        names = sorted(question.check, key=lambda name: name.startswith("new/"))
        return [*unsharded_names(recipe_of(question)), *PASSES, *names]
    names = [step.result for step in question.mesh_steps]
    names += [given.name for given in question.inputs]
    return names + [step.result for step in question.steps]


def format_mesh_step(step: MeshStep) -> str:
    """A mesh step in the program notation."""
    params = "".join(f", {key}={value!r}" for key, value in step.params.items())
    return f"{step.result} = {step.op}({', '.join(step.axes)}{params})"


def _format_input(given: Input, mesh: Mesh) -> str:
    layout = format_both_notations(given.layout, mesh)
    return f"{given.name}: {given.dtype}{list(given.shape)}  {layout}"


def format_step(step: Step, mesh: Mesh) -> str:
    """A step in the program notation, and the layout asked for in both notations."""
    given = [*map(str, step.args), *(f"{key}={value!r}" for key, value in step.params.items())]
    text = f"{step.result} = {step.op}({', '.join(given)})"
    return text + (f"    to {format_both_notations(step.to, mesh)}" if step.to is not None else "")


def _format_result(
    case: Case, one: FailingResult, answers: Mapping[str, Answer], verdicts: Sequence[Verdict]
) -> list[str]:
    """One finding at length, and a line for each other thing that is wrong with its result."""
    verdict, finding = one.verdict, one.finding
    answer = answers.get(verdict.subject)
    at = verdict.step or "the whole program"
    against = "" if verdict.against == REFERENCE else f", held against {verdict.against}"
    severity = verdict.severity or "another answer"
    lines = [f"{verdict.aspect:<12}{verdict.subject} at {at}: {severity}{against}"]
    lines[0] += _format_layout(case, answer, result_name(verdict.step), verdict)
    lines += _format_detail(case, verdict, finding)
    if verdict.ledger:
        lines.append(f"{_INDENT}cause   {verdict.ledger}")
    if answer is not None:
        lines += _format_shards(case, answer, result_name(verdict.step), verdict)
        if verdict.aspect == "ending":
            lines += _format_output(answer.end)
    for other, what in one.beside:
        detail = _format_detail(case, other, what)
        if isinstance(what.observation, OtherRedistributionPlan | BrokenContract):
            lines += [f"{other.aspect:<12}{other.step or 'the whole program'}", *detail]
            continue
        short = _first_difference(case, what) or f"wanted {other.wanted}, got {other.got}"
        against = "" if other.against == REFERENCE else f", held against {other.against}"
        lines.append(f"{other.aspect:<12}{other.step or 'the whole program'}{against}: {short}")
    if others := _format_other_subjects(case, one, verdicts):
        lines.append(f"{_INDENT}others  {others}")
    return lines


def _format_detail(case: Case, verdict: Verdict, finding: Finding) -> list[str]:
    observed = finding.observation
    lines = []
    if isinstance(observed, OtherRedistributionPlan | BrokenContract):
        lines = format_plan_table(observed)
        why = finding.why
    else:
        if where := _first_difference(case, finding):
            lines.append(where)
        lines += [f"wanted  {verdict.wanted}", f"got     {verdict.got}"]
        why = verdict.why
    if why:
        lines.append(f"why     {why}")
    return [f"{_INDENT}{line}" for line in lines]


def _first_difference(case: Case, finding: Finding) -> str:
    """Position and index of the first difference; "" if there is none."""
    if finding.observation is None:
        return ""
    return describe_observation(finding.observation, mesh_of(case, result_name(finding.step))).where


def _format_layout(case: Case, answer: Answer | None, name: str, verdict: Verdict) -> str:
    """The layout that a framework gives a result, in both notations."""
    if answer is None or verdict.aspect in ("layout", "ending", "meshes", "dry run", "record"):
        return ""
    seen = next((one for one in answer.seen if one.name == name), None)
    if seen is None or seen.layout is None:
        return ""
    return f"    {format_reported_layout(seen.layout, mesh_of(case, name))}"


def _format_shards(case: Case, answer: Answer, name: str, verdict: Verdict) -> list[str]:
    """The mesh with its shards, one device a line, where it fits."""
    if verdict.aspect not in ("soundness", "global", "shards", "gradients"):
        return []
    try:
        seen: Observed = answer[name]
    except KeyError:
        return []
    mesh = mesh_of(case, name)
    if seen.shards is None or mesh.size > _MOST_DEVICES:
        return []
    if any(shard is not None and unpack(shard).size > _MOST_ELEMENTS for shard in seen.shards):
        return []
    return [f"{_INDENT}shards of {name} in {answer.subject}:"] + [
        f"{_INDENT}  {format_position(mesh, p)}: {'none' if shard is None else format_array(shard)}"
        for p, shard in enumerate(seen.shards)
    ]


def _format_output(end: End) -> list[str]:
    """What a crash or a hang printed."""
    if isinstance(end, Crashed):
        first = [] if end.rank is None else [f"{_INDENT}rank {end.rank} was found dead first"]
        return first + [f"{_INDENT}  {line}" for line in end.output.splitlines()[-_MOST_LINES:]]
    if not isinstance(end, Hung):
        return []
    lines = [f"{_INDENT}{end.raised}"] if end.raised else []
    alike: dict[str, list[int]] = {}
    for rank, stack in enumerate(end.stacks):
        alike.setdefault(stack.strip("\n"), []).append(rank)
    for stack, ranks in alike.items():
        who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
        lines.append(f"{_INDENT}{who}{':' if stack else ' had ended'}")
        lines += [f"{_INDENT}  {line}" for line in stack.splitlines()]
    return lines


def _format_other_subjects(case: Case, one: FailingResult, verdicts: Sequence[Verdict]) -> str:
    """Which other subjects are right where this one is not, since that often shows who is wrong."""
    verdict = one.verdict
    # The case states a count for one framework only, and a record belongs to one subject.
    if isinstance(one.finding.observation, WrongCount) or verdict.against == RECORD:
        return ""
    by_ending = verdict.aspect == "ending"
    # A subject that ran to the end with a wrong value is not right, although its ending is.
    bad = {v.subject for v in verdicts if v.severity in ("wrong", "refused", "route refused")}
    found: dict[str, list[Outcome]] = {}
    for v in verdicts:
        same = v.aspect == verdict.aspect and (by_ending or v.step == verdict.step)
        if same and v.subject != verdict.subject:
            found.setdefault(v.subject, []).append(v.verdict)
    # One line of a subject may agree where another line does not.
    known = [s for s, some in found.items() if "known" in some and "divergence" not in some]
    right = [
        s
        for s, some in found.items()
        if "agree" in some
        and not {"known", "divergence"} & {*some}
        and not (by_ending and s in bad)
    ]
    parts = [f"{join_words(right)} {'is' if len(right) == 1 else 'are'} right"] if right else []
    if known:
        parts.append(
            f"{join_words(known)} {'has' if len(known) == 1 else 'have'} a known fault here"
        )
    return "; ".join(parts)


def join_words(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _format_consequences(after: Sequence[Verdict]) -> list[str]:
    """What follows from an earlier result, in one line for each subject."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in sorted(after, key=lambda one: ASPECTS.index(one.aspect)):
        aspects = found.setdefault(one.subject, {}).setdefault(one.step or "the whole program", [])
        if one.aspect not in aspects:
            aspects.append(one.aspect)
    lines = []
    for subject, steps in found.items():
        told = [f"{step} ({', '.join(aspects)})" for step, aspects in steps.items()]
        more = f", and {len(told) - _MOST_TOLERATED} more" if len(told) > _MOST_TOLERATED else ""
        lines.append(
            f"after   in {subject} this follows: {', '.join(told[:_MOST_TOLERATED])}{more}"
        )
    return ["", *lines] if lines else []


def _format_tolerated(
    case: Case, judgement: Judgement, failing: Sequence[int], own: bool
) -> list[str]:
    """What differs and fails nothing, a line each; for a user's case also what was not asked."""
    found: dict[str, list[str]] = {}
    ends: dict[str, list[Verdict]] = {}
    for index, (verdict, finding) in enumerate(zip(judgement.verdicts, judgement.findings)):
        if verdict.aspect == "ending":
            ends.setdefault(framework_of(verdict.subject), []).append(verdict)
        if index in failing or finding.observation is None or finding.severity is None:
            continue
        cause = f" (known cause: {verdict.ledger})" if verdict.ledger else ""
        text = format_tolerated(finding, mesh_of(case, result_name(finding.step)))
        subjects = found.setdefault(f"{text}{cause}", [])
        if verdict.subject not in subjects:
            subjects.append(verdict.subject)
    lines = [f"{', '.join(subjects)}: {text}" for text, subjects in found.items()]
    if own:
        lines += [
            f"{name} was not asked: {some[0].why}"
            for name, some in ends.items()
            if all(v.verdict == "not comparable" and v.severity is None for v in some)
        ]
    if not lines:
        return []
    more = [f"and {len(lines) - _MOST_TOLERATED} more"] if len(lines) > _MOST_TOLERATED else []
    return ["", *_format_under("told", [*lines[:_MOST_TOLERATED], *more])]


def _format_under(key: str, lines: Sequence[str]) -> list[str]:
    return [f"{key if not at else '':<8}{line}" for at, line in enumerate(lines)]


def _format_commands(
    bad: Sequence[Verdict], command: str, scripts: Sequence[str], folder: str
) -> list[str]:
    """How to run just this again, and how to show it without this project."""
    wrong = {framework_of(one.subject) for one in bad}
    needed = wrong | {framework_of(one.against) for one in bad if one.against in _SUBJECTS}
    off = [f"--{name}=" for name in FRAMEWORKS if name not in needed]
    given = [one for one in shlex.split(command) if not one.startswith(tuple(off))]
    words = shlex.join([*given, *(f"{one}off" for one in off)])
    lines = [f"again   {words}"]
    for name in scripts:
        if not name.endswith(tuple(f"_{one}.py" for one in wrong)):
            continue
        path = shlex.quote(f"{folder.rstrip('/') or 'out'}/{name}")
        first = "" if folder else f"{words} --repro=out; "
        lines.append(f"alone   {first}python {path}")
    return lines


_SUBJECTS = frozenset(one for row in FRAMEWORKS.values() for one in row.subjects)


def format_endings(answers: Mapping[str, Answer]) -> str:
    """How each answer ended, for a skip that has nothing else to say."""
    return "; ".join(f"{subject}: {format_end(answer.end)}" for subject, answer in answers.items())
