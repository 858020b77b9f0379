"""How is a failed case told to a person? First cause first, in both notations, with a way back.

Writes text from verdicts and answers; decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adapters.answer import Answer, Crashed, End, Hung, Observed, ending
from adapters.registry import FRAMEWORKS, framework_of
from cases.arrays import unpack
from cases.ledger import ASPECTS, Aspect
from cases.model import Case, Input, Mesh, MeshStep, Step
from cases.notation import both
from cases.recipes import row_of, sizes_of
from cases.recipes.form import PASSES
from cases.recipes.layouts import plain
from suites.judge import Judgement
from suites.tensors import bare, mesh_of
from suites.values import show
from suites.verdict import RECORD, Verdict
from suites.wording import place, where

# A mesh picture has one line per device; more would push the text off the screen.
_MOST_DEVICES = 8
_MOST_ELEMENTS = 16


def report(
    case: Case,
    judgement: Judgement,
    failing: Sequence[int],
    answers: Mapping[str, Answer],
    command: str,
) -> str:
    """The failure text of one case; its first line says what is wrong.

    ``failing``: the indices of the verdicts that fail it. ``command``: the pytest command that runs
    this case alone.
    """
    verdicts = judgement.verdicts
    order = {name: number for number, name in enumerate(_order(case))}
    bad = [(i, verdicts[i]) for i in failing]
    bad.sort(key=lambda iv: (order.get(bare(iv[1].step), -1), ASPECTS.index(iv[1].aspect)))
    lines = [_headline(bad), *_asked(case)]
    for index, verdict in bad:
        lines += ["", *_told(verdict, where(judgement.findings[index], case))]
        answer = answers.get(verdict.subject)
        if answer is not None:
            lines += _picture(case, answer, bare(verdict.step), verdict)
            if verdict.aspect == "ending":
                lines += _remains(answer.end)
    lines += ["", *_others(verdicts, bad)]
    program = case.question.mode == "real" and case.question.recipe is None
    return "\n".join(lines + _again(bad, command, program))


def _headline(bad: Sequence[tuple[int, Verdict]]) -> str:
    """What is wrong, in the one line that pytest's short summary shows."""
    first = next((v for _, v in bad if v.severity == "wrong"), bad[0][1])
    at = f" at {first.step}" if first.step else ""
    what = _HEADLINES.get(first.aspect, first.aspect)
    if first.aspect == "ending":
        what = first.got
        at = ""
    elif first.against == RECORD:
        what = "another answer than its record"
    cause = f" (known cause: {first.ledger})" if first.ledger else ""
    more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"{first.subject}: {what}{at}{cause}{more}"


_HEADLINES: dict[Aspect, str] = {
    "soundness": "contradicts itself",
    "global": "wrong value",
    "gradients": "wrong gradient",
    "shards": "wrong shards",
    "layout": "another layout than asked for",
    "collectives": "other collectives",
    "effects": "the counters disagree",
    "meshes": "wrong mesh",
    "dry run": "the dry run differs from the run with data",
}


def _asked(case: Case) -> list[str]:
    question, mesh = case.question, case.question.mesh
    lines = [f"case    {case.id}" + (f"    {case.source}" if case.source else "")]
    devices = "" if mesh.devices == tuple(range(mesh.size)) else f", devices {list(mesh.devices)}"
    lines.append("mesh    " + ", ".join(f"{name}={size}" for name, size in mesh.axes) + devices)
    if question.recipe is not None:
        sizes = ", ".join(f"{name}={size}" for name, size in sizes_of(question).items())
        lines.append(f"recipe  {question.recipe.name} on {sizes}: {row_of(question).how}")
    lines += [f"mesh    {mesh_said(step)}" for step in question.mesh_steps]
    lines += [f"input   {_given(given, mesh_of(case, given.name))}" for given in question.inputs]
    lines += [f"step    {said(step, mesh_of(case, step.result))}" for step in question.steps]
    return lines


def _order(case: Case) -> list[str]:
    if case.question.recipe is not None:
        # The unsharded step first: what is wrong there is wrong everywhere.
        names = case.question.check
        return [*plain(row_of(case.question)), *names, *PASSES]
    return [given.name for given in case.question.inputs] + [
        step.result for step in case.question.steps
    ]


def mesh_said(step: MeshStep) -> str:
    """A mesh step as a program has its steps."""
    params = "".join(f", {key}={value!r}" for key, value in step.params.items())
    return f"{step.result} = {step.op}({', '.join(step.axes)}{params})"


def _given(given: Input, mesh: Mesh) -> str:
    return f"{given.name}: {given.dtype}{list(given.shape)}  {both(given.layout, mesh)}"


def said(step: Step, mesh: Mesh) -> str:
    """A step in the program notation, and the layout asked for in both notations."""
    given = [*map(str, step.args), *(f"{key}={value!r}" for key, value in step.params.items())]
    text = f"{step.result} = {step.op}({', '.join(given)})"
    return text + (f"    to {both(step.to, mesh)}" if step.to is not None else "")


def _told(verdict: Verdict, where: str) -> list[str]:
    against = f"differs from {verdict.against}"
    lines = [
        f"{verdict.aspect:<12}{verdict.subject} {against}    at {verdict.step or 'the program'}"
    ]
    if where:
        lines.append(f"            {where}")
    lines += [f"            wanted  {verdict.wanted}", f"            got     {verdict.got}"]
    if verdict.why:
        lines.append(f"            why     {verdict.why}")
    if verdict.ledger:
        lines.append(f"            cause   {verdict.ledger}")
    return lines


def _picture(case: Case, answer: Answer, name: str, verdict: Verdict) -> list[str]:
    """The mesh with its shards, one device a line, where it fits."""
    if verdict.aspect not in ("soundness", "global", "shards"):
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
    return [f"            shards of {name} in {answer.subject}:"] + [
        f"              {place(mesh, p)}: {'none' if shard is None else show(shard)}"
        for p, shard in enumerate(seen.shards)
    ]


def _remains(end: End) -> list[str]:
    """What a crash or a hang left to read."""
    if isinstance(end, Crashed):
        first = [] if end.rank is None else [f"            rank {end.rank} was found dead first"]
        return first + [f"              {line}" for line in end.output.splitlines()[-20:]]
    if not isinstance(end, Hung):
        return []
    lines = [f"            {end.raised}"] if end.raised else []
    for rank, stack in enumerate(end.stacks):
        lines.append(
            f"            stack of rank {rank}:" if stack else f"            rank {rank} had ended"
        )
        lines += [f"              {line}" for line in stack.splitlines()]
    return lines


def _others(verdicts: Sequence[Verdict], bad: Sequence[tuple[int, Verdict]]) -> list[str]:
    """Which subjects agree where others fail: often that tells who is wrong."""
    failing = {(v.aspect, v.step) for _, v in bad}
    agreeing: dict[tuple[str, str | None], list[str]] = {}
    for v in verdicts:
        if v.verdict in ("agree", "known") and (v.aspect, v.step) in failing:
            agreeing.setdefault((v.aspect, v.step), []).append(f"{v.subject} ({v.verdict})")
    return [
        f"{aspect:<12}{step or 'program'}: {', '.join(sorted(set(subjects)))}"
        for (aspect, step), subjects in agreeing.items()
    ]


def _again(bad: Sequence[tuple[int, Verdict]], command: str, scripts: bool) -> list[str]:
    """How to see just this again, per framework, and without us."""
    frameworks = sorted({framework_of(verdict.subject) for _, verdict in bad})
    lines = [f"again   {command}"]
    for name in frameworks:
        others = [f"--{other}=off" for other in FRAMEWORKS if other != name]
        words = [command, *(one for one in others if one not in command)]
        lines.append(f"{name:<8}{' '.join(words)}")
    # Of plans and of whole models there are no scripts.
    return [*lines, f"alone   {command} --repro=out/"] if scripts else lines


def ended(answers: Mapping[str, Answer]) -> str:
    """How each answer ended, for a skip that has nothing else to say."""
    return "; ".join(f"{subject}: {ending(answer.end)}" for subject, answer in answers.items())
