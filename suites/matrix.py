"""Are there records of all releases? Makes those that are missing, one environment after another.

``python -m suites.matrix`` asks tox for the environments that bear the label ``records``, leaves
out those whose record holds every question of the present catalogue, and runs the others twice, so
that answers which are not the same in both are marked as unstable. Each environment is removed
after use, with what uv kept for it: no more disk is needed than the largest takes. What was done
before a break is not done again, unless the code is another. Goes on after a failure, and ends with
1 if there was one. Refuses to know what a record says.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from adapters import record, values
from adapters.registry import FRAMEWORKS
from cases.catalogue import catalogue
from cases.errors import BadInput
from cases.ledger import LEDGER
from suites.sources import RECORDS, public, record_path

ROOT = Path(__file__).resolve().parent.parent
LABEL = "records"

# Where an environment leaves its record; tox.ini takes it from there.
VARIABLE = "RECORDS"

# The folder beside the environments in which runs stay until a record is whole.
WORK = "recording"

# Lines of a log that are shown of a run that failed.
_TAIL = 15

_NAME = re.compile(rf"py\d+-({'|'.join(FRAMEWORKS)})-([\w.]+)")


class Environment(msgspec.Struct, frozen=True):
    """A tox environment that records one release."""

    name: str
    framework: str
    release: str


class Plan(msgspec.Struct, frozen=True):
    """What is to be done: ``tox``, the command, in the project at ``root``; records to ``folder``.

    ``runs``: of each release. ``again``: also of those whose record is there. ``keep``: leave the
    environments. ``words``: for pytest, which may leave out cases.
    """

    tox: tuple[str, ...]
    root: Path
    folder: Path
    runs: int = 2
    again: bool = False
    keep: bool = False
    words: tuple[str, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """How an environment fared: what went wrong, or "" if nothing did; whether it was run."""

    failure: str
    ran: bool = True


def environments(tox: Sequence[str], root: Path) -> list[Environment]:
    """The environments of a project's ``tox.ini`` that record, in its order.

    Raises:
        ValueError: tox cannot say, or the name of one does not say what it records.
    """
    command = [*tox, "list", "-m", LABEL, "--no-desc"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode:
        raise ValueError(f"found {' '.join(command)}: {listed.stderr.strip()}, wanted a list")
    found = []
    for name in listed.stdout.split():
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"found environment {name}, wanted a name such as py311-torch-2.13.0")
        found.append(Environment(name, match[1], match[2]))
    return found


def files(folder: Path, framework: str, release: str) -> tuple[Path, Path, Path]:
    """Where a folder keeps the text of a record, its arrays, and the release's interface."""
    text = record_path(folder, framework, release)
    return text, values.path_beside(text), text.with_suffix(".interface.jsonl")


def stale(folder: Path, environment: Environment, digests: Mapping[str, str]) -> str:
    """Why a folder has no record of a release as the catalogue is today; "" if it has one.

    ``digests``: of every question, by id.
    """
    text, _, interface = files(folder, environment.framework, environment.release)
    if not text.exists():
        return "no record"
    try:
        one = record.load(text, environment.framework)
    except BadInput as error:
        return str(error)
    if public(one.header.release) != environment.release:
        return f"a record of {one.header.release}"
    asked = {id: line.digest for id, line in one.lines.items()}
    if asked != digests:
        missing, gone = len(digests.keys() - asked), len(asked.keys() - digests)
        other = sum(asked[id] != due for id, due in digests.items() if id in asked)
        return f"questions: {missing} not asked, {other} changed, {gone} no longer there"
    return "" if interface.exists() else "no interface"


def wanted() -> dict[str, str]:
    """The digest of every question of the catalogue, by id."""
    return {case.id: record.digest(case.question) for case in catalogue()}


def make(plan: Plan, environment: Environment, digests: Mapping[str, str]) -> Outcome:
    """Record one release, in as many runs as are wanted.

    Runs stay in a folder of their own until all are done, and logs if something is wrong.
    """
    work = plan.root / ".tox" / WORK / environment.name
    work.mkdir(parents=True, exist_ok=True)
    parts = [work / str(run + 1) for run in range(plan.runs)]
    code = 0
    try:
        for part in parts:
            # What is limited to some cases is never all that there is.
            if not plan.words and _done(part) and not stale(part, environment, digests):
                continue
            code |= _run(plan, environment, part, work / "uv-cache")
            if lacking := _lacking(part, environment, {} if plan.words else digests):
                return Outcome(f"{lacking}\n{_tail(_log(part))}")
            (part / _BY).write_text(code_of(ROOT))
        made = _merged(environment, parts, work / "merged")
    except BadInput as error:
        return Outcome(str(error))
    finally:
        if not plan.keep:
            shutil.rmtree(plan.root / ".tox" / environment.name, ignore_errors=True)
            shutil.rmtree(work / "uv-cache", ignore_errors=True)
    # The text comes last: by it a record is known.
    for path in made:
        shutil.move(path, plan.folder / path.name)
    if not code:
        shutil.rmtree(work)
        return Outcome("")
    for part in parts:
        shutil.rmtree(part)
    return Outcome(f"recorded, but tox ended with {code}\n{_tail(_log(parts[-1]))}")


def _run(plan: Plan, environment: Environment, part: Path, cache: Path) -> int:
    """One run into a fresh folder; the exit code of tox."""
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    # Under a tox of its own, its TOX_WORK_DIR would have the last word.
    place = ["--workdir", str(plan.root / ".tox")]
    command = [*plan.tox, "run", *place, "-e", environment.name, "--", *plan.words]
    own = {VARIABLE: str(part)} if plan.keep else {VARIABLE: str(part), "UV_CACHE_DIR": str(cache)}
    with _log(part).open("wb") as out:
        return subprocess.run(
            command, cwd=plan.root, env={**os.environ, **own}, stdin=subprocess.DEVNULL,
            stdout=out, stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip


# In the folder of a run that is done: by which code.
_BY = "by"


def code_of(root: Path) -> str:
    """A digest of all that has a say in an answer: what is asked, and by what code."""
    found = hashlib.sha256()
    for room in ("adapters", "cases"):
        for path in sorted((root / room).rglob("*")):
            if path.suffix in (".py", ".toml", ".json") and LEDGER not in path.parents:
                found.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _done(part: Path) -> bool:
    by = part / _BY
    return by.exists() and by.read_text() == code_of(ROOT)


def _lacking(part: Path, environment: Environment, digests: Mapping[str, str]) -> str:
    if digests:
        return stale(part, environment, digests)
    text = files(part, environment.framework, environment.release)[0]
    return "" if text.exists() else "no record"


def _log(part: Path) -> Path:
    return part.with_suffix(".log")


def _merged(environment: Environment, parts: Sequence[Path], folder: Path) -> list[Path]:
    """The runs made one: its files, the record's text last."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = (environment.framework, environment.release)
    text, arrays, interface = files(folder, *names)
    record.merge(text, [record.load(files(part, *names)[0]) for part in parts])
    first, *others = [files(part, *names)[2] for part in parts]
    for other in others:
        if other.read_bytes() != first.read_bytes():
            found = f"another listing than {first}"
            raise BadInput(str(other), "", "", found, "the same in every run")
    shutil.copy(first, interface)
    return [interface, arrays, text]


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"the end of {log}:", *(f"    {line}" for line in lines[-_TAIL:])])


def run(plan: Plan, chosen: Sequence[Environment]) -> dict[str, Outcome]:
    """Every environment in turn; says how far it is. By name, how each fared."""
    digests, began = wanted(), time.monotonic()
    found: dict[str, Outcome] = {}
    for n, environment in enumerate(chosen, start=1):
        why = stale(plan.folder, environment, digests) or ("once more" if plan.again else "")
        head = f"{n} of {len(chosen)}, {environment.name}"
        if not why:
            found[environment.name] = Outcome("", ran=False)
            print(f"{head}: there", flush=True)
            continue
        print(f"{head}: {why}; recording", flush=True)
        since = time.monotonic()
        outcome = found[environment.name] = make(plan, environment, digests)
        took, whole = ((time.monotonic() - start) / 60 for start in (since, began))
        print(f"{head}: {outcome.failure or 'recorded'}", flush=True)
        print(f"    {took:.1f} minutes, {whole:.1f} in all", flush=True)
    return found


def summary(found: Mapping[str, Outcome]) -> Iterable[str]:
    """What was done, and what went wrong, in a few lines."""
    there = sum(not one.ran for one in found.values())
    failed = {name: one for name, one in found.items() if one.failure}
    made = len(found) - there - len(failed)
    yield f"{len(found)} environments: {there} there already, {made} recorded, {len(failed)} failed"
    for name, one in failed.items():
        yield f"    {name}: {one.failure.splitlines()[0]}"


def main(words: Sequence[str]) -> int:
    """The command; 1 if an environment failed, 2 if there is nothing to run."""
    at = list(words).index("--") if "--" in words else len(words)
    own, rest = words[:at], words[at + 1 :]
    parser = argparse.ArgumentParser("python -m suites.matrix", description=__doc__)
    parser.add_argument("pattern", nargs="*", help="environments, such as '*-jax-*'; all, if none")
    parser.add_argument("--folder", type=Path, default=RECORDS, help="where the records go")
    parser.add_argument("--runs", type=int, default=2, help="runs of each release (default: 2)")
    parser.add_argument("--again", action="store_true", help="record what is there once more")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    given = parser.parse_args(own)
    tox = [sys.executable, "-m", "tox"]
    try:
        listed = environments(tox, ROOT)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    patterns = given.pattern or ["*"]
    chosen = [one for one in listed if any(fnmatchcase(one.name, p) for p in patterns)]
    if not chosen or given.runs < 1 or not given.folder.is_dir():
        wanted = "an environment, a run and a folder that exists"
        print(f"found {' '.join(words)}, wanted {wanted} at least", file=sys.stderr)
        return 2
    folder, words = given.folder.resolve(), tuple(rest)
    plan = Plan(tuple(tox), ROOT, folder, given.runs, given.again, given.keep, words)
    found = run(plan, chosen)
    print("\n".join(summary(found)))
    return 1 if any(one.failure for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
