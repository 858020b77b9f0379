"""Do stand-alone scripts show what they are for? Written from the records, and run.

A script exits non-zero while its fault stands, and 0 once what came is what was wanted.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adapters.answer import Answer, Done, Hung, Observed, Refused
from adapters.registry import FRAMEWORKS, framework_of, load_part, subjects
from cases.arrays import Array, pack, unpack
from cases.catalogue import catalogue
from cases.layout import index_ranges, offset
from cases.ledger import LEDGER, load_ledger
from cases.load import load
from cases.model import Case, Layout
from reports.faults import LARGER, OTHER_AXES, Check, Fault, NoScript, find_faults
from reports.repro import make_scripts
from reports.tell import recorded_answers
from suites.judge import judge
from suites.verdict import Verdict

CASES = {
    case.id: case
    for case in catalogue()
    if case.question.mode == "real" and case.question.recipe is None
}
LEDGER_ENTRIES = load_ledger(LEDGER, subjects())
RELEASES = {"torch": "2.13.0", "jax": "0.10.2"}

# Script -> what it says of wanted, and of got.
STANDING = {
    "x4-d3.2.1.0-s0-5-float32_torch": ("[1.0, 2.0, 3.0, 4.0, 5.0]", "[0.0, 0.0, 3.0, 0.0, 5.0]"),
    "x4-d3.2.1.0-s0-8-bool_torch": ("[True, False]", "[True, True]"),
    "x4-r-to-p_torch": ("an answer", "RuntimeError('Can not redistribute from R to P(sum)"),
    "matmul-x4-s0-by-s0_torch": ("{'alltoall': 1, 'reducescatter': 1}", "{'allgather': 1}"),
    "lesson-matmul-s1-by-s0_jax": ("P(unreduced={'x'})", "P()"),
    "a2.b2-s0.s0-to-s1.r_jax": ("{'all-gather': 1, 'all-to-all': 1}", "{'all-gather': 1}"),
    "x4-s0-to-s1-0x4_jax": ("(0, 1)", "(0, 4)"),
    "matmul-x4-r-by-s0_jax": ("{'all-to-all': 1, 'all-gather': 1}", "{'all-reduce': 1}"),
    "a2.b2-r.p-to-p.r_jax": ("an answer", "Check failed"),
}  # fmt: skip

MAX_OF_NOTHING = """
[[case]]
id = "max-of-nothing"
mesh = { x = 2 }
program = ["m = max(x)"]
check = ["m"]
inputs.x = { shape = [1, 3], placements = { x = "S(0)" } }
"""

# Runs scripts one after another, each in a child of a process that has imported the framework.
DRIVER = """
import importlib, os, runpy, sys
for name in sys.argv[1].split():
    importlib.import_module(name)
for path in sys.argv[2:]:
    if os.fork() == 0:
        out = os.open(path + ".out", os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        os.dup2(out, 2)
        runpy.run_path(path, run_name="__main__")
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.wait()[1])
    print(path, code, flush=True)
"""


def scripts(case: Case) -> dict[str, str]:
    """The scripts of a case as the committed records have it, by name."""
    answers = recorded_answers(case)
    judgement = judge(case, answers, LEDGER_ENTRIES)
    made, _ = make_scripts(case, judgement, answers, RELEASES)
    return {name.removesuffix(".py"): text for name, text in made.items()}


def ask(
    folder: Path, framework: str, made: dict[str, str], seconds: float = 200
) -> dict[str, tuple[int, str]]:
    """Exit code and output of scripts, run one after another."""
    paths = {}
    for name, text in made.items():
        paths[name] = folder / f"{name}.py"
        paths[name].write_text(text)
    # DTensor imports the second when it is first used: once here, else in every rank.
    modules = {"torch": "torch.distributed.tensor torch._dynamo", "jax": "jax.numpy"}[framework]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, modules, *map(str, paths.values())], cwd=folder,
        capture_output=True, text=True, timeout=seconds, check=True,
    )  # fmt: skip
    codes = dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())
    return {
        name: (int(codes[str(path)]), Path(f"{path}.out").read_text(errors="replace"))
        for name, path in paths.items()
    }


@pytest.fixture(scope="module", params=list(FRAMEWORKS))
def standing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[int, str]]:
    """What the scripts of one framework in `STANDING` did."""
    made = {}
    for name in STANDING:
        case, _, framework = name.rpartition("_")
        if framework == request.param:
            made[name] = scripts(CASES[case])[name]
    assert made
    return ask(tmp_path_factory.mktemp(request.param), request.param, made)


def test_a_script_shows_its_fault(standing: dict[str, tuple[int, str]]) -> None:
    """Values, shards, refusals, counts, layouts and a crash: wanted, got, a telling exit."""
    for name, (code, out) in standing.items():
        wanted, got = STANDING[name]
        assert code != 0, f"{name}: {out}"
        assert f"wanted {wanted}" in out or f"{wanted}, " in out, out
        assert got in out.partition("got")[2], out


# A script waits so long for ranks that it knows to hang; here less will do.
_PATIENT, _HASTY = "time.time() + 20", "time.time() + 3"

# Public reports of which a script shows nothing: framework -> case -> why. Others have one.
NONE = {
    "jax": {"public/jax/E6": "the counts are those of several programs together"},
    "torch": {"public/dtensor/T17": f"collectives: {LARGER}"},
}


@pytest.mark.parametrize("framework", list(FRAMEWORKS))
def test_the_script_of_each_public_report_shows_its_fault(framework: str, tmp_path: Path) -> None:
    """Of all reports that are wrong, refused or costly here: it exits 1, and says wanted and got.

    About two seconds each, one after another: they need all cores.
    """
    made, without = {}, {}
    for case in CASES.values():
        if not (case.id.startswith("public/") or case.id == "along.cumprod"):
            continue
        answers = recorded_answers(case)
        judgement = judge(case, answers, LEDGER_ENTRIES)
        found, missing = make_scripts(case, judgement, answers, RELEASES)
        made |= {
            name.removesuffix(".py"): text.replace(_PATIENT, _HASTY)
            for name, text in found.items()
            if name.endswith(f"_{framework}.py")
        }
        for told in missing:
            about, _, why = told.partition(": ")
            if about.endswith(f", {framework}"):
                without[case.id] = why
        # What is wrong with one route comes before what another route refuses.
        grave = {
            verdict.severity
            for verdict in judgement.verdicts
            if framework_of(verdict.subject) == framework
        }
        fault = find_faults(case, judgement, answers)[0].get(framework)
        if fault is not None and "wrong" in grave:
            assert fault.verdict.severity == "wrong", case.id
    assert without == NONE[framework]
    assert len(made) >= 24
    ran = ask(tmp_path, framework, made, seconds=500)
    silent = {
        name: (code, out[-300:])
        for name, (code, out) in ran.items()
        if code == 0 or "wanted" not in out or ("got" not in out and code > 0)
    }
    assert silent == {}


def test_a_refusal_that_only_a_later_step_brings_about_has_that_step(tmp_path: Path) -> None:
    """A masked partial can be reduced once: what materialises it again needs both."""
    (tmp_path / "twice.toml").write_text(REDUCED_TWICE)
    (case,) = load(tmp_path / "twice.toml")
    refused = Refused("AssertionError", "(no text; raised in _reduce_value)", "h/full")
    answers = {"torch": Answer(case.id, "torch", refused)}
    (text,) = make_scripts(case, judge(case, answers, ()), answers, RELEASES)[0].values()
    code, out = ask(tmp_path, "torch", {"twice": text})["twice"]
    assert code == 1, out
    assert "got    AssertionError" in out


REDUCED_TWICE = """
[[case]]
id = "embedding-then-reduced"
mesh = { tp = 4 }
program = ["h = embedding(ids, table)", "out = redistribute(h, tp=R)"]
[case.inputs]
ids = { shape = [4], dtype = "int64", spec = "P()", values = [0, 3, 5, 7] }
table = { shape = [8, 4], spec = "P('tp')" }
"""


def agreeing(case: Case, subject: str, check: Check, **more: Any) -> Fault:
    """A fault that is none: what y is, wanted."""
    seen = recorded_answers(case)[subject]["y"]
    verdict = Verdict(case.id, "y", "global", subject, "reference", "divergence")
    fields = {"mesh": case.question.mesh, "seen": seen, **more}
    return Fault(verdict, check, "y", False, "wrong value", **fields)


def spoiled(array: Array) -> Array:
    """The same with another first element."""
    values = unpack(array).copy()
    values.flat[0] = values.flat[0] == 0
    return pack(values)


def checks(seen: Observed, case: Case, wrong: bool) -> dict[Check, dict[str, Any]]:
    """For each kind of check what makes it agree with an answer, or not."""
    assert isinstance(seen.layout, Layout)
    held = index_ranges(case.question.mesh, seen.layout, seen.shape)
    shards = tuple(one for one in seen.shards or () if one is not None)
    whole = Layout(((),) * len(seen.shape))
    kinds: dict[str, int] = {}
    for one in seen.collectives or ():
        kinds[one.kind] = kinds.get(one.kind, 0) + 1
    return {
        "full": {"arrays": (spoiled(seen.full[0]) if wrong else seen.full[0],)},
        "shards": {"arrays": (*shards[:-1], spoiled(shards[-1]) if wrong else shards[-1])},
        "own shards": {"shard_ranges": held[::-1] if wrong else held},
        "offsets": {"offsets": tuple(map(offset, held[::-1] if wrong else held))},
        "layout": {"layout": whole if wrong else seen.layout},
        "counts": {"counts": ({"all-reduce": 9} if wrong else kinds,)},
        "total": {"counts": ({} if wrong else kinds,)},
    }


@pytest.mark.parametrize("framework", list(FRAMEWORKS))
def test_a_script_ends_well_once_its_fault_is_gone(framework: str, tmp_path: Path) -> None:
    """Every kind of check passes on what is right, and fails on the same program spoiled."""
    case = CASES["x4-s0-to-s1"]
    subject = {"torch": "torch", "jax": "jax/explicit"}[framework]
    seen = recorded_answers(case)[subject]["y"]
    made, wanted = {}, {}
    for wrong in (False, True):
        for check, more in checks(seen, case, wrong).items():
            if wrong and check in ("full", "shards", "counts"):
                # Those of `STANDING` show these.
                continue
            name = f"{check.replace(' ', '-')}-{wrong}"
            made[name] = load_part(framework, "script").script(
                case, agreeing(case, subject, check, **more), RELEASES[framework]
            )
            wanted[name] = int(wrong)
    ran = ask(tmp_path, framework, made)
    assert {name: code for name, (code, _) in ran.items()} == wanted, ran


def test_a_script_tells_who_waits(tmp_path: Path) -> None:
    """Of a hang: what the one rank raised, and that the other still waits; then it ends."""
    (tmp_path / "hangs.toml").write_text(MAX_OF_NOTHING)
    (case,) = load(tmp_path / "hangs.toml")
    answers = {"torch": Answer(case.id, "torch", Hung("rank 1 raised", "m", "RuntimeError: max()"))}
    judgement = judge(case, answers, ())
    (text,) = make_scripts(case, judgement, answers, RELEASES)[0].values()
    assert "time.time() + 20" in text
    made = {"hangs": text.replace("time.time() + 20", "time.time() + 5")}
    code, out = ask(tmp_path, "torch", made)["hangs"]
    assert code == 1
    assert "rank 1 wanted an answer\n       got    RuntimeError" in out
    assert "ranks [0] wanted an answer\n       got    none" in out


@pytest.mark.parametrize("wrong", [False, True])
def test_a_torch_script_runs_under_torchrun(wrong: bool, tmp_path: Path) -> None:
    """With a rank for each device, which torchrun starts."""
    case = next(one for one in CASES.values() if one.question.mesh.shape == (2,) and _full(one))
    name = case.question.inputs[0].name
    seen = recorded_answers(case)["torch"][name]
    verdict = Verdict(case.id, name, "global", "torch", "reference", "divergence")
    right = (spoiled(seen.full[0]) if wrong else seen.full[0],)
    fault = Fault(
        verdict, "full", name, False, "wrong value", case.question.mesh, seen, arrays=right
    )
    path = tmp_path / "script.py"
    path.write_text(load_part("torch", "script").script(case, fault, RELEASES["torch"]))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*command, path], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode != 0) == wrong, done.stderr
    assert b"got" in done.stdout


def _full(case: Case) -> bool:
    answer = recorded_answers(case)["torch"]
    return (
        isinstance(answer.end, Done) and answer.seen[0].full != () and answer.seen[0].shape > (1,)
    )


def test_a_script_of_the_catalogue_is_short_and_needs_nothing_of_ours() -> None:
    """One case in twelve: about 40 lines that say what is known; where there are none, a reason.

    The longest have three partial inputs, each with its addends, or views of a world.
    """
    lengths, reasons = [], set[str]()
    for case in list(CASES.values())[::12]:
        answers = recorded_answers(case)
        judgement = judge(case, answers, LEDGER_ENTRIES)
        found, missing = find_faults(case, judgement, answers)
        assert set(missing.values()) <= {f"collectives: {OTHER_AXES}", f"collectives: {LARGER}"}
        for framework, fault in found.items():
            try:
                text = load_part(framework, "script").script(case, fault, RELEASES[framework])
            except NoScript as error:
                reasons.add(str(error).partition(", ")[2])
                continue
            lengths.append(len(text.splitlines()))
            assert text.startswith(f"# {case.id}")
            cause = fault.verdict.ledger
            assert cause is None or f"known as {cause}: " in text, case.id
            assert _imported(text) <= _STANDARD | {framework, "numpy"}, case.id
    assert reasons <= {"wanted pending sums only (unreduced)"}
    assert len(lengths) > 100
    assert max(lengths) <= 60
    assert sorted(lengths)[len(lengths) * 9 // 10] <= 47


_STANDARD = {"base64", "collections", "os", "re", "sys", "tempfile", "time", "zlib"}


def _imported(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    return found
