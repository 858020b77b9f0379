"""How does a case come out? Every aspect of every answer, and what the ledger knows of it.

Pure: a case, its answers, the ledger and the records that pin counts go in, verdicts come out.
The ledger is two-sided: an entry that names a case and no longer holds there is a divergence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from adapters.answer import Answer, Done, Observed, Unsupported, ending
from adapters.registry import framework_of
from cases.facts import Facts, facts
from cases.ledger import Entry, applies, names, steps
from cases.model import Case, Layout
from suites import aspects, plans, recipes
from suites.collectives import collectives, say
from suites.effects import effects
from suites.truth import Truth, truth
from suites.verdict import Aspect, Finding, Verdict, agree, not_comparable, said_of

SHARD_MAP = "jax/shard_map"

# What is observed of an entry that fails to hold.
GONE = "no longer holds"

# What a plan may show, and need not: it may take a value, or another rank, to see it.
_WITH_DATA = (
    "wrong value", "wrong shard", "wrong offset", "ranks differ", "refused", "hung", "crashed",
)  # fmt: skip


class Judgement(msgspec.Struct, frozen=True):
    """The verdicts of a case, and for some, by index, where the first difference is."""

    verdicts: list[Verdict]
    where: dict[int, str]


def judge(
    case: Case,
    answers: Mapping[str, Answer],
    ledger: Sequence[Entry],
    releases: Mapping[str, str],
    pins: Mapping[str, Answer],
    real: Mapping[str, Answer] | None = None,
) -> Judgement:
    """Everything that can be said about one case.

    ``answers`` and ``pins``: by subject; a pin is what the committed record of the very same
    release holds. ``releases``: by framework. ``real``: as pins, of the question with its data,
    where the case is its plan.
    """
    verdicts: list[Verdict] = []
    where: dict[int, str] = {}
    if real is not None:
        answers = {name: plans.reached(one, real.get(name)) for name, one in answers.items()}
    fact = facts(case)
    torch = answers.get("torch")
    doubt = frozenset[str | None]()
    if torch is not None and case.question.recipe is None:
        doubt = (plans if case.question.mode == "plan" else aspects).doubtful(
            case, torch, truth(case, "torch")
        )
    for subject, answer in answers.items():
        # Each framework is held to its own, where it defines something apart.
        right = truth(case, framework_of(subject))
        found = findings(case, answer, torch, right, doubt)
        found += pinned(answer, pins.get(subject))
        if real is not None:
            found = plans.left_to_data(found, real.get(subject))
            found += plans.agreement(answer, real.get(subject))
        release = releases.get(framework_of(subject), "0")
        named = [one for one in about(case, subject, ledger, fact) if applies(one, release)]
        for finding, entry in known(case, found, named):
            if finding.where:
                where[len(verdicts)] = finding.where
            verdicts.append(said_of(finding, case.id, subject, entry))
    return Judgement(verdicts, where)


def findings(
    case: Case,
    answer: Answer,
    torch: Answer | None,
    right: Truth,
    doubt: frozenset[str | None] = frozenset(),
) -> list[Finding]:
    """What an answer gives rise to, aspect by aspect, before the ledger has its say.

    ``torch`` is what other frameworks' shards and layouts are held against; ``doubt`` names
    where it is wrong itself.
    """
    found = alone(case, answer, right)
    if torch is not None and framework_of(answer.subject) != framework_of(torch.subject):
        found += beside(case, answer, torch, right, doubt)
    return found


def alone(case: Case, answer: Answer, right: Truth) -> list[Finding]:
    """What an answer gives rise to by itself, held against the reference."""
    if case.question.recipe is not None:
        return recipes.alone(case, answer, right)
    if isinstance(answer.end, Unsupported) and answer.subject.startswith(SHARD_MAP):
        # Those routes are for changes of layout: elsewhere one line says so, not ten.
        return [not_comparable(None, "global", f"unsupported: {answer.end.why}")]
    found = aspects.meshes(case, answer)
    answer = aspects.of_tensors(case, answer)
    plan = case.question.mode == "plan"
    found += (plans if plan else aspects).soundness(case, answer, right)
    found += (plans if plan else aspects).global_(case, answer, right)
    found += aspects.stated(case, answer)
    found += collectives(case, answer, right)
    found += counts(case, answer)
    found += sufficient(case, answer)
    if not plan:
        found += effects(case, answer)
    return found


def beside(
    case: Case, answer: Answer, torch: Answer, right: Truth, doubt: frozenset[str | None]
) -> list[Finding]:
    """What an answer gives rise to, held against that of torch."""
    if case.question.recipe is not None:
        return recipes.beside(case, answer, torch, right)
    if isinstance(answer.end, Unsupported) and answer.subject.startswith(SHARD_MAP):
        return []
    answer, torch = aspects.of_tensors(case, answer), aspects.of_tensors(case, torch)
    if case.question.mode == "plan":
        found = plans.shards(case, answer, torch, doubt)
    else:
        found = aspects.shards(case, answer, torch, right, doubt)
    if not answer.subject.startswith(SHARD_MAP):
        found += aspects.layout(case, answer, torch)
    return found


def counts(case: Case, answer: Answer) -> list[Finding]:
    """What the case's source says torch fires, kind by kind."""
    if answer.subject != "torch":
        return []
    found = []
    for step, wanted in case.expectation.counts.items():
        name = step.removesuffix("/full")
        seen = next((seen for seen in answer.seen if seen.name == name), None)
        fired = (
            None if seen is None else seen.collectives if name == step else seen.full_collectives
        )
        if fired is None:
            found.append(not_comparable(step, "collectives", "not counted"))
            continue
        got: dict[str, int] = {}
        for one in fired:
            got[one.kind] = got.get(one.kind, 0) + 1
        if got == wanted:
            found.append(agree(step, "collectives", why="as the source counts them"))
        else:
            texts = [
                ", ".join(f"{n} {kind}" for kind, n in c.items()) or "none" for c in (wanted, got)
            ]
            found.append(
                Finding(step, "collectives", "reference", "divergence", "wrong count", *texts)
            )
    return found


def sufficient(case: Case, answer: Answer) -> list[Finding]:
    """Whether a program fired more collectives than the case's source says suffice.

    Held against the number alone, over all kinds: what suffices is another plan's business.
    """
    enough = case.expectation.sufficient
    if enough is None or not isinstance(answer.end, Done) or answer.subject.startswith(SHARD_MAP):
        return []
    fired = answer.program
    if fired is None:
        results = {step.result for step in case.question.steps}
        steps = [seen.collectives for seen in answer.seen if seen.name in results]
        if len(steps) < len(results) or None in steps:
            return [not_comparable(None, "collectives", "not every step is checked")]
        fired = tuple(one for own in steps for one in own or ())
    texts = ", ".join(f"{n} {kind}" for kind, n in enough.items()) or "none", say(fired)
    if len(fired) <= sum(enough.values()):
        return [agree(None, "collectives", why="no more than suffice")]
    return [
        Finding(None, "collectives", "reference", "divergence", "plan: more than suffices", *texts)
    ]


def pinned(answer: Answer, pin: Answer | None) -> list[Finding]:
    """Counts and layouts must be those that the record of the same release holds."""
    if pin is None or isinstance(pin.end, Unsupported):
        return []
    if type(answer.end) is not type(pin.end):
        return [_changed(None, "global", ending(pin.end), ending(answer.end))]
    if not isinstance(answer.end, Done):
        return []
    found = []
    if answer.program != pin.program:
        found.append(
            _changed(None, "collectives", say(pin.program or ()), say(answer.program or ()))
        )
    kept = {seen.name: seen for seen in pin.seen}
    for seen in answer.seen:
        before = kept.get(seen.name)
        if before is None:
            continue
        for step, ours, theirs in (
            (seen.name, seen.collectives, before.collectives),
            (f"{seen.name}/full", seen.full_collectives, before.full_collectives),
        ):
            if ours != theirs:
                found.append(_changed(step, "collectives", say(theirs or ()), say(ours or ())))
        if seen.layout != before.layout:
            found.append(_changed(seen.name, "layout", _layout(before), _layout(seen)))
    return found


def _layout(seen: Observed) -> str:
    if isinstance(seen.layout, Layout):
        return f"dims {seen.layout.dims}, partial {seen.layout.partial}"
    return "none" if seen.layout is None else seen.layout.text


def _changed(step: str | None, aspect: Aspect, wanted: str, got: str) -> Finding:
    return Finding(
        step, aspect, "reference", "divergence", "changed", f"{wanted}, with its bytes", got,
        "the record of this very release says otherwise",
    )  # fmt: skip


def about(case: Case, subject: str, ledger: Sequence[Entry], fact: Facts) -> list[Entry]:
    """The entries and rules of a ledger that name a case of a subject, of whatever release."""
    return [entry for entry in ledger if entry.subject == subject and names(entry, case, fact)]


def known(
    case: Case, found: Sequence[Finding], about: Sequence[Entry]
) -> list[tuple[Finding, str | None]]:
    """Findings with the ledger's say: known, still a divergence, or an entry that fails to hold.

    ``about``: what is in force of all that names the case of this subject.
    """
    # What holds for every case that it names comes before what merely names a kind.
    entries = [entry for entry in about if not entry.rule]
    rules = [entry for entry in about if entry.rule]
    out: list[tuple[Finding, str | None]] = []
    for finding in found:
        if finding.observed.startswith("rule: "):
            out.append(_lowered(case, finding, rules))
            continue
        if finding.verdict != "divergence":
            out.append((finding, None))
            continue
        entry = next((entry for entry in (*entries, *rules) if _fits(entry, case, finding)), None)
        if entry is None:
            out.append((finding, None))
        else:
            known_of = msgspec.structs.replace(finding, verdict="known", why=entry.why)
            out.append((known_of, entry.id))
    missed = [entry for entry in entries if holds(entry, case, found) is False]
    return out + [(_gone(entry), entry.id) for entry in missed]


def holds(entry: Entry, case: Case, found: Sequence[Finding]) -> bool | None:
    """Whether what an entry or a rule knows of is there, in a case that it names.

    None where it could not have shown: all that it is about was not comparable (another framework
    left out, a question that a record does not have), or a plan has no data to show it.
    """
    for finding in found:
        if finding.observed.startswith("rule: "):
            if any(_fits(entry, case, single) for single in _singly(finding)):
                return True
        elif finding.verdict == "divergence" and _fits(entry, case, finding):
            return True
    if case.question.mode == "plan" and entry.observed.startswith(_WITH_DATA):
        return None
    shown = any(one.aspect == entry.aspect and one.verdict != "not comparable" for one in found)
    return False if shown else None


def _singly(finding: Finding) -> list[Finding]:
    """A count that several lowering rules explain together, as one finding for each."""
    names = finding.observed.removeprefix("rule: ").split(" and ")
    return [msgspec.structs.replace(finding, observed=f"rule: {name}") for name in names]


def _lowered(case: Case, finding: Finding, rules: Sequence[Entry]) -> tuple[Finding, str | None]:
    """A count explained by lowering rules, each of which the ledger has to have."""
    ids, why = [], [finding.why] if finding.why else []
    for single in _singly(finding):
        rule = next((rule for rule in rules if _fits(rule, case, single)), None)
        if rule is None:
            missing = f"no rule of the ledger is called {single.observed.removeprefix('rule: ')!r}"
            return msgspec.structs.replace(finding, verdict="divergence", why=missing), None
        ids.append(rule.id)
        why.append(rule.why)
    return msgspec.structs.replace(finding, why="; ".join(why)), ids[0]


def _fits(entry: Entry, case: Case, finding: Finding) -> bool:
    return (
        entry.aspect == finding.aspect
        and entry.observed == finding.observed
        and (not entry.cases.step or finding.step in steps(entry, case))
    )


def _gone(entry: Entry) -> Finding:
    return Finding(
        next(iter(entry.cases.step), None), entry.aspect, "reference", "divergence",
        GONE,
        f"{entry.observed}, as ledger entry {entry.id} says", "no such thing",
        f"remove {entry.id} from the ledger, or bound its range of versions or cases",
    )  # fmt: skip
