"""Does the drift page say what the records hold, and nothing that they do not?"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from adapters import record
from adapters.answer import Answer, Collective, Crashed, Done, Hung, Observed, Refused, Unsupported
from adapters.interface import Default
from cases.arrays import Array, pack, unpack
from cases.model import Foreign, Layout
from reports import __main__ as command_line
from reports.drift import pages, release_history
from reports.drift.answer_changes import find_differences, find_hidden_kinds, find_uncountable_steps
from reports.drift.answer_pair import AnswerPair
from reports.drift.case_history import find_unchanged_releases, format_history
from reports.drift.finding_listing import UnknownId, list_finding
from reports.drift.grouping import case_size
from reports.drift.model import CHANGE_KINDS, ChangeKind
from reports.drift.patterns import (
    collectives_pattern,
    format_collectives,
    layout_pattern,
    message_pattern,
)
from reports.formatting import format_releases
from suites.sources import record_path
from tests import planted as p
from tests.runs import ROOT

GATHER = Collective("all-gather", ("x",), 4, 64)


def bumped(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Arrays of which every element is one more."""
    return tuple(pack(unpack(one) + np.asarray(1, unpack(one).dtype)) for one in arrays)


def nudged(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Arrays of which every element is the next larger number that its dtype has."""
    return tuple(pack(np.nextafter(unpack(one), np.float32(np.inf))) for one in arrays)


def relaid(layout: Layout) -> Layout:
    """Another layout."""
    return Layout(((),) * layout.ndim)


PLANTS: dict[str, tuple[p.Edit, ChangeKind, bool, str]] = {
    "value": (p.on(p.MOVE, p.seen("y", full=bumped, shards=bumped)), "value", True, "1.0"),
    "dtype": (p.on(p.MOVE, p.seen("y", dtype="float64")), "value", True, "float64[8, 8]"),
    "a shard alone": (p.on(p.MOVE, p.seen("y", shards=bumped)), "value", True, "device 0 (x=0): "),
    "rounding": (p.on(p.OP, p.seen("r", full=nudged, shards=nudged)), "rounding", False, ""),
    "layout": (p.on(p.MOVE, p.seen("y", layout=relaid)), "layout", True, "[R]"),
    "foreign": (p.on(p.MOVE, p.seen("y", layout=Foreign("masked"))), "layout", True, "masked"),
    "count": (p.on(p.MOVE, p.seen("y", collectives=(GATHER,) * 2)), "count", True, "2 all-gather"),
    "bytes": (
        p.on(p.MOVE, p.seen("y", full_collectives=lambda own: tuple(
            msgspec.structs.replace(one, bytes=9) for one in own))),
        "count", True, "of 9 B",
    ),
    "memory": (p.on(p.PLAN, p.replaced(peak=7)), "memory", False, "7 B"),
    "refusal": (
        p.on(p.MOVE, p.replaced(end=Refused("KeyError", "no x", "y"))), "refusal", False, "no x",
    ),
    "no refusal": (p.on(p.REFUSED, p.replaced(end=Done())), "refusal", False, "an answer"),
    "words": (
        p.on(p.REFUSED, p.replaced(end=Refused("RuntimeError", "never", "y"))), "refusal", False,
        "never",
    ),
    "crash": (p.on(p.MOVE, p.replaced(end=Crashed("SIGSEGV", 1))), "refusal", False, "SIGSEGV"),
    "hang": (p.on(p.MOVE, p.replaced(end=Hung("no answer", "y"))), "refusal", False, "hung at y"),
    "support": (
        p.on(p.MOVE, p.replaced(end=Unsupported("no such op", "y"))), "support", False,
        "no such op",
    ),
    "a gradient of a recipe": (
        p.on(p.RECIPE, p.seen("grad/up.weight", full=bumped, shards=bumped)), "value", True, "",
    ),
    "a mesh": (p.on(p.MESHES, lambda answer: msgspec.structs.replace(
        answer, seen=(msgspec.structs.replace(
            answer.seen[0], shards=bumped(answer.seen[0].shards or ())), *answer.seen[1:]))),  # type: ignore[arg-type]
        "value", True, "device 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_change_is_found(tmp_path: Path, plant: str) -> None:
    """One finding of its kind, in the data and on both pages, with what is there now."""
    edit, kind, silent, said = PLANTS[plant]
    story = p.story(p.planted(tmp_path, edit))
    (found,) = story.findings
    (change,) = found.changes
    assert (found.kind, found.silent, len(found.cases)) == (kind, silent, 1)
    assert change.case in p.IDS
    assert change.before != change.after
    assert said in change.after
    markdown, html = p.pages([story])
    for page in (markdown, html):
        assert page.count(found.id) >= 1
        assert p.cases()[change.case].id in page
    assert said.replace("|", "\\|") in markdown


def test_nothing_planted_is_nothing_found(tmp_path: Path) -> None:
    """A record beside its own copy, with its own interface: no change, and pages without one."""
    for framework in ("torch", "jax"):
        facts = p.FACTS if framework == "torch" else ()
        p.planted(tmp_path, framework=framework, facts=(facts, facts))
    stories = p.stories(tmp_path)
    assert [story.framework for story in stories] == ["torch", "jax"]
    for story in stories:
        assert story.borders[0].changes == ()
        assert story.borders[0].asked == len(p.IDS)
        assert story.findings == ()
    markdown, html = p.pages(stories)
    assert "\n0 findings.\n" in markdown
    assert "<tr id=" not in html


def test_a_count_of_a_whole_program_is_found(tmp_path: Path) -> None:
    """Of JAX's jit, which has no steps."""
    edit = p.on(p.PRODUCT, p.replaced(program=(GATHER,)), "jax/jit")
    (found,) = p.story(p.planted(tmp_path, edit, framework="jax")).findings
    assert (found.kind, found.subject, found.smallest.step) == ("count", "jax/jit", "")
    assert found.pattern == "all-reduce → all-gather"
    assert found.places == ("matmul",)


# For each field, something else; what a field of another name needs, this table has to learn.
OTHERWISE: dict[str, Any] = {
    "end": Refused("KeyError", "no", "y"),
    "program": (GATHER,),
    "complaints": ("CommDebugMode counted 1",),
    "apart": ("rank 1 finished",),
    "peak": 7,
    "seen": (),
    "dtype": "float64",
    "shape": (4, 16),
    "layout": Layout(((), ())),
    "shards": bumped,
    "offsets": ((0, 0),) * 4,
    "full": bumped,
    "collectives": (GATHER, GATHER),
    "full_collectives": (),
    "disagreements": ("rank 1 has another layout",),
    "note": "reduced",
    "mesh": p.cases()[p.OP].question.mesh,
    "local": (1, 2),
}


@pytest.mark.parametrize("field", OTHERWISE)
def test_no_field_of_an_answer_changes_unnoticed(field: str) -> None:
    """Another value of any field, and its absence where it may be absent, is told."""
    (answer,) = p.kept("torch").stored_answers(p.MOVE)
    if field in Answer.__struct_fields__:
        base = msgspec.structs.replace(answer, program=(), peak=3)
        edits = [p.replaced(**{field: OTHERWISE[field]})]
    else:
        base = p.seen("y", note="n", disagreements=("d",))(answer)
        edits = [p.seen("y", **{field: OTHERWISE[field]})]
        if field in ("layout", "shards", "offsets", "collectives", "full_collectives"):
            edits.append(p.seen("y", **{field: None}))
    for edit in edits:
        pair = AnswerPair(p.cases()[p.MOVE], base, edit(base))
        assert pair.older != pair.newer
        assert find_differences(pair) or find_uncountable_steps(pair)


def test_every_field_of_an_answer_is_tried() -> None:
    """So that a field that answers get later is not forgotten."""
    fields = {*Answer.__struct_fields__, *Observed.__struct_fields__}
    assert fields - {"question", "subject", "name"} == OTHERWISE.keys()


def test_every_change_is_in_exactly_one_finding(tmp_path: Path) -> None:
    """Many changes at once: all are in some finding, none in two, and every finding is named."""
    edits = [edit for edit, *_ in PLANTS.values()]

    def all_of_them(answer: Answer) -> Answer:
        for edit in edits:
            answer = edit(answer) if answer.seen else answer
        return answer

    left = tuple(one for one in p.FACTS if "redistribute" not in p.about(one))
    facts = (p.FACTS, (*left, Default("jax_enable_x64", "True")))
    story = p.story(p.planted(tmp_path, all_of_them, facts=facts))
    (border,) = story.borders
    grouped = [change for finding in story.findings for change in finding.changes]
    assert len(border.changes) >= 10
    assert Counter(grouped) == Counter(border.changes)
    assert len({finding.id for finding in story.findings}) == len(story.findings)
    for page in p.pages([story]):
        assert all(finding.id in page for finding in story.findings)


def test_cases_that_change_alike_are_one_finding(tmp_path: Path) -> None:
    """With all of them, the smallest first: devices, steps, elements, then the id."""
    ids = [id for id in p.cases() if id.startswith(("matmul-x4", "matmul-a2.b2"))][:40]
    edit = p.seen("y", collectives=(GATHER,) * 7)
    story = p.story(p.planted(tmp_path, edit, ids=ids))
    counted = [one for one in story.findings if one.pattern == "none → all-gather"]
    assert len(counted) == 1
    (found,) = counted
    assert len(found.cases) > 5
    smallest = min(found.cases, key=lambda id: (case_size(p.cases()[id]), id))
    assert found.smallest.case == smallest
    text = "\n".join(list_finding(found.id, [story], p.cases()))
    assert all(f"  {id} at y" in text for id in found.cases)


def test_smaller_is_fewer_devices_then_steps_then_elements() -> None:
    """In this order, whatever the others are."""
    case = p.cases()[p.MOVE]
    question = case.question

    def of(**fields: object) -> Any:
        return msgspec.structs.replace(case, question=msgspec.structs.replace(question, **fields))

    big = msgspec.structs.replace(question.inputs[0], shape=(99, 99))
    two = p.cases()[p.OP].question.mesh
    fewer = msgspec.structs.replace(two, axes=(("a", 2),), devices=(0, 1))
    steps = of(steps=question.steps * 2)
    elements = of(inputs=(big,))
    devices = of(mesh=fewer, steps=question.steps * 9, inputs=(big,))
    ordered = [devices, case, elements, steps]
    assert sorted((steps, case, elements, devices), key=case_size) == ordered


def test_what_differs_from_run_to_run_is_left_out_and_counted(tmp_path: Path) -> None:
    """A change in an unstable answer is no drift."""
    edit = PLANTS["value"][0]
    border = p.border(p.planted(tmp_path, edit, unstable=True))
    assert border.changes == ()
    assert border.unstable == ((p.MOVE, "torch"),)
    markdown, _ = p.pages(p.stories(tmp_path))
    assert "| torch 2.13.0 → 2.13.9 | 7 | 0 | 1 | 0 |" in markdown


def test_what_cannot_be_counted_is_not_seen(tmp_path: Path) -> None:
    """No count where one side has none: neither a change nor a zero."""
    edit = p.on(p.MOVE, p.seen("y", collectives=None))
    border = p.border(p.planted(tmp_path, edit))
    assert border.changes == ()
    assert border.unseen == ((p.MOVE, "torch", "y"),)
    markdown, _ = p.pages(p.stories(tmp_path))
    assert "| torch 2.13.0 → 2.13.9 | 7 | 0 | 0 | 1 |" in markdown
    assert "collectives of y, in one of the two" in "\n".join(
        format_history(tmp_path, p.cases()[p.MOVE])
    )


def test_what_a_release_hides_is_not_seen(tmp_path: Path) -> None:
    """A kind that one of the releases hides is no change; another kind is."""
    sentence = "reduce-scatter on gloo: the functional op performs an all-reduce and a slice"
    scatter = Collective("reduce-scatter", ("x",), 4, 64)
    edit = p.on(p.MOVE, p.seen("y", collectives=lambda own: (*own, scatter)))
    hiding = p.planted(tmp_path / "1", edit, unseen=(sentence,))
    assert p.border(hiding).changes == ()
    assert p.border(hiding).unseen == ((p.MOVE, "torch", "y"),)
    markdown, html = p.pages(p.stories(hiding))
    assert f"torch 2.13.9, not seen: {sentence}" in markdown
    assert f"torch 2.13.9, not seen: {sentence}" in html
    edit = p.on(p.MOVE, p.seen("y", collectives=lambda own: (*own, GATHER)))
    assert len(p.border(p.planted(tmp_path / "2", edit, unseen=(sentence,))).changes) == 1
    assert find_hidden_kinds((sentence,), (sentence,)) == frozenset()
    assert find_hidden_kinds((), ("all-gather, broadcast: as scatter",)) == {
        "all-gather",
        "broadcast",
    }
    assert (
        find_hidden_kinds((), ("CommDebugMode counts less: no second counter checks ours",))
        == frozenset()
    )


def test_a_question_in_other_words_is_no_drift(tmp_path: Path) -> None:
    """Nor one that only one of the two was asked."""
    folder = p.planted(tmp_path, PLANTS["value"][0])
    path = folder / "torch-2.13.9.jsonl"
    digest = p.kept("torch").lines[p.MOVE].digest
    lines = path.read_text().replace(digest, "0" * 16)
    path.write_text(lines)
    border = p.border(folder)
    assert (border.changes, border.apart, border.asked) == ((), (p.MOVE,), len(p.IDS) - 1)


@pytest.mark.parametrize(
    "end",
    [Refused("KeyError", "{} has none", "y"), Unsupported("{} has none, since 2.99 there is")],
)
def test_a_release_s_own_number_is_no_change(tmp_path: Path, end: Refused | Unsupported) -> None:
    """That it lacks a thing is said by each release with its own number."""
    folder = p.planted(tmp_path, p.on(p.MOVE, p.replaced(end=end)), older=True)
    for release in ("2.13.0", "2.13.9"):
        path = folder / f"torch-{release}.jsonl"
        said = path.read_text()
        assert "{} has" in said
        path.write_text(said.replace("{} has", f"torch {release} has"))
    assert p.border(folder).changes == ()


def test_shards_that_change_with_a_layout_are_its_own(tmp_path: Path) -> None:
    """Where a tensor lies otherwise, each device holds something else: no change beside."""
    edit = p.on(p.MOVE, p.seen("y", layout=relaid, shards=bumped, offsets=((0, 0),) * 4))
    (change,) = p.border(p.planted(tmp_path, edit)).changes
    assert change.kind == "layout"


def test_collectives_that_change_with_a_layout_are_told_with_it(tmp_path: Path) -> None:
    """One finding, which says so; a later step's count says that something else lies otherwise."""
    edit = p.on(p.MOVE, lambda answer: p.seen("x", layout=relaid)(
        p.seen("y", collectives=(GATHER,) * 2)(answer)))  # fmt: skip
    story = p.story(p.planted(tmp_path, edit))
    assert [(one.kind, one.pattern) for one in story.findings] == [
        ("layout", "S → R"), ("count", "more all-gather, with another layout"),
    ]  # fmt: skip
    both = p.on(p.MOVE, p.seen("y", layout=relaid, collectives=(GATHER,) * 2))
    (found,) = p.story(p.planted(tmp_path, both)).findings
    assert found.with_counts == 1
    for page in p.pages(p.stories(tmp_path)):
        assert "collectives too" in page
        assert "fires 2 all-gather(x) of 64 B" in page


def test_the_gravest_come_first(tmp_path: Path) -> None:
    """Values, then layouts, then counts, then errors, in each section and in the table."""
    story = p.story(p.planted(tmp_path, lambda answer: PLANTS["count"][0](
        PLANTS["rounding"][0](PLANTS["memory"][0](PLANTS["no refusal"][0](
            PLANTS["a gradient of a recipe"][0](answer)))))))  # fmt: skip
    kinds = [one.kind for one in story.findings]
    assert kinds == sorted(kinds, key=CHANGE_KINDS.index)
    assert len(set(kinds)) == 5
    for page in p.pages([story]):
        places = [page.index(one.id) for one in story.findings]
        assert places == sorted(places)


def test_a_number_that_was_right_and_is_wrong_is_called_so(tmp_path: Path) -> None:
    """By the truth of its case; a rounding is never called wrong."""
    (found,) = p.story(p.planted(tmp_path, PLANTS["value"][0])).findings
    assert found.smallest.turn == "broken"
    for page in p.pages(p.stories(tmp_path)):
        assert "was right and is now wrong" in page
    (found,) = p.story(p.planted(tmp_path, PLANTS["rounding"][0])).findings
    assert found.smallest.turn == ""


def test_a_layout_changes_axis_by_axis() -> None:
    """Without dims and names of axes; what placements cannot say, in other words."""
    mesh = p.cases()[p.OP].question.mesh
    split, both = Layout((("a",), ())), Layout((("a", "b"), ()))
    assert layout_pattern(mesh, split, both) == "R → S"
    assert layout_pattern(mesh, split, Layout(((), ("a",)))) == "S → S of another dim"
    assert layout_pattern(mesh, Layout(((), ()), (("a", "sum"), ("b", "max"))), split) == (
        "P(max) → R, P(sum) → S"
    )
    assert layout_pattern(mesh, None, Foreign("masked by 7")) == "no layout → masked by …"


def test_counts_change_pass_by_pass() -> None:
    """Kinds that came and went; axes and bytes where kinds did not."""
    back = msgspec.structs.replace(GATHER, pass_="backward")
    other = msgspec.structs.replace(GATHER, axes=("y",))
    assert collectives_pattern((GATHER,), ()) == "all-gather → none"
    assert collectives_pattern((GATHER,), (GATHER, GATHER)) == "more all-gather"
    assert (
        collectives_pattern((GATHER,), (Collective("all-to-all", ("x",), 4, 1),))
        == "all-gather → all-to-all"
    )
    assert collectives_pattern((GATHER,), (other,)) == "all-gather with other axes"
    assert collectives_pattern((GATHER,), (GATHER, back)) == "backward: none → all-gather"
    assert collectives_pattern((GATHER, other), (other, GATHER)) == "in another order"
    assert format_collectives((GATHER, GATHER, back)) == (
        "2 all-gather(x) of 64 B, backward: all-gather(x) of 64 B"
    )


def test_messages_are_alike_without_what_is_the_case_s() -> None:
    """Names of ops, numbers and what brackets hold; the words stay."""
    said = "Operator aten.{}.default does not have a sharding strategy registered for dim {}."
    assert message_pattern(said.format("sort", 3)) == message_pattern(said.format("fft_c2c", 0))
    assert "does not have a sharding strategy" in message_pattern(said.format("sort", 3))
    assert message_pattern("rule for sub is missing") == message_pattern("rule for abs is missing")


def test_releases_are_told_in_spans() -> None:
    """Of those that are there, one after the other."""
    releases = ("2.4", "2.5", "2.6", "2.8")
    assert format_releases(releases, ("2.4", "2.5", "2.8")) == "2.4–2.5, 2.8"
    assert format_releases(releases, releases) == "2.4–2.8"
    assert format_releases(releases, ()) == "none"


def test_a_case_is_told_through_all_releases(tmp_path: Path) -> None:
    """Releases that answer alike in one stretch, and what changed at each border."""
    folder = p.planted(tmp_path, PLANTS["layout"][0])
    story = format_history(folder, p.cases()[p.MOVE])
    assert story[-4:] == [
        "  2.13.9",
        "    layout, silent  y: S → R",
        "      before  [S(1)] = P(None, 'x')",
        "      after   [R] = P()",
    ]
    assert "  2.13.0–2.13.9" in format_history(folder, p.cases()[p.PRODUCT])
    records = [p.kept("torch")] * 3
    (one,) = find_unchanged_releases(p.cases()[p.MOVE], records, "torch")
    assert one.releases == ("2.13.0",) * 3
    assert "  2.13.0–2.13.9  (not asked)" in format_history(folder, p.cases()["x4-r-to-s1"])


def test_an_answer_that_begins_later_is_told_whole(tmp_path: Path) -> None:
    """Where the release before was stopped, all that the next one says of a result is new."""
    own, case = p.kept("torch"), p.cases()[p.MOVE]
    good = own.stored_answers(p.MOVE)
    stopped = tuple(
        msgspec.structs.replace(one, end=Refused("E", "no", "y"), seen=one.seen[:1]) for one in good
    )
    for release, given in ((p.OLDER["torch"], stopped), (p.NEWER["torch"], good)):
        hello = msgspec.structs.replace(own.hello(), release=release)
        record.write(record_path(tmp_path, "torch", release), hello, [(case.question, given)])
    story = format_history(tmp_path, case)
    at = story.index("      after   an answer")
    assert story[at + 1].startswith("    y  float32[8, 8]  [S(1)]  =  P(None, 'x')")
    assert "      fires all-gather(x) of 64 B" in story[at:]
    assert not any(line.startswith("    x  ") for line in story[at:])


def test_an_unknown_case_is_one_clear_error() -> None:
    command = [sys.executable, "-m", "reports", "drift", "--case", "x4-s0-to-s11"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    said = "no case is called 'x4-s0-to-s11'; the nearest: x4-s0-to-s1"
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def test_an_unknown_finding_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So is a finding, of which it names one that there is."""
    story = p.story(p.planted(tmp_path, p.seen("y", collectives=(GATHER,) * 7)))
    monkeypatch.setattr(command_line, "committed_histories", lambda: (story,))
    assert command_line.main(["drift", "--finding", "nothing0"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("no finding is called 'nothing0'; the nearest: ")
    assert err.split()[-1] in {one.id for one in story.findings}


def test_the_command_line_tells_a_case() -> None:
    command = [sys.executable, "-m", "reports", "drift", "--case", p.MOVE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for part in (f"{p.MOVE}    mesh x=4", "\ntorch\n", "\njax/jit\n", "fires all-gather(x)"):
        assert part in done.stdout


def test_no_finding_has_no_such_id() -> None:
    with pytest.raises(UnknownId, match="the nearest: none"):
        list_finding("12345678", [], {})


def test_both_pages_are_fresh_and_have_every_change_in_one_finding() -> None:
    """What `python -m reports drift` would write is there; the records are read once."""
    texts = {path: path.read_text() for path in (pages.MARKDOWN, pages.HTML)}
    for path, page in ((pages.MARKDOWN, pages.markdown), (pages.HTML, pages.html)):
        fresh = page(release_history.committed_histories(), release_history.catalogue_by_id())
        assert texts[path] == fresh, f"{path.name} is stale: python -m reports drift"
    for story in release_history.committed_histories():
        changes = Counter(change for border in story.borders for change in border.changes)
        assert changes == Counter(one for found in story.findings for one in found.changes)
        for found in story.findings:
            assert all(found.id in text for text in texts.values())


def test_the_page_asks_nothing_of_anyone() -> None:
    """One file below 2 MB: no address to load from, and a policy that would forbid it."""
    text = pages.HTML.read_text()
    assert len(text.encode()) < 2_000_000
    assert "default-src 'none'" in text
    # What a cell or an attribute quotes is text; what could load is a tag, a style or a script.
    tags = " ".join(re.findall(r"<[a-z][^>]*>", re.sub(r'"[^"]*"', '""', text)))
    assert "<table" in tags
    assert re.findall(r"<link[^>]*>", text) == ['<link rel="icon" href="data:,">']
    assert not re.search(r"\s(src|srcset)=|<iframe|<img", tags)
    acting = "".join(re.findall(r"<(?:style|script)\b.*?</(?:style|script)>", text, re.DOTALL))
    assert len(acting) > 1000
    for sign in ("@import", "url(", "fetch(", "XMLHttpRequest", "import("):
        assert sign not in acting
