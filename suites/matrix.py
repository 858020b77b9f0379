"""Do the records of all releases have every question? Asks each release what its record lacks.

``python -m suites.matrix`` takes the environments that tox lists under the label ``records``. It
runs each whose record lacks a question of the present catalogue, or has it with other words. It
runs it twice, so that an answer which differs between the two runs is marked as unstable. All other
lines of a record stay as they are; lines of questions that are gone are dropped.

A change of the adapter's code makes no line stale, but is told. ``--again`` asks everything anew,
or the questions that words for pytest select. ``--verify N`` asks N recorded questions once more
and compares the answers.

Each environment is removed after use, with what uv kept for it, so the largest alone decides how
much disk is needed. A run that was interrupted goes on where it stopped, unless the code has
changed. A failure does not stop the others; the command then ends with 1. Refuses to know what an
answer says.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from adapters import record
from adapters.code_digest import digest_code
from adapters.record import Record
from adapters.registry import FRAMEWORKS
from cases.catalogue import catalogue
from cases.errors import BadInput
from suites.missing_questions import (
    Environment,
    MissingQuestions,
    RecordingOptions,
    Verification,
    find_missing_questions,
    read_record,
    record_files,
    verify_answers,
)
from suites.sources import RECORDS

ROOT = Path(__file__).resolve().parent.parent
TOX_LABEL = "records"

# The variable that tells an environment where to leave its record; tox.ini reads it.
RECORDS_VARIABLE = "RECORDS"

# The folder, beside the environments, in which runs stay until a record is whole.
WORK_FOLDER = "recording"

# How many lines of the log are shown of a run that failed.
_TAIL_LINES = 15

_NAME = re.compile(rf"py\d+-({'|'.join(FRAMEWORKS)})-([\w.]+)")


class RecordingResult(msgspec.Struct, frozen=True):
    """How an environment fared: what went wrong, or "" if nothing did; whether it was run.

    ``note``: what was noticed and is not a failure.
    """

    failure: str
    ran: bool = True
    note: str = ""


def environments(tox: Sequence[str], root: Path) -> list[Environment]:
    """The environments of a project's ``tox.ini`` that record, in its order.

    Raises:
        ValueError: tox cannot list them, or the name of one does not say what it records.
    """
    command = [*tox, "list", "-m", TOX_LABEL, "--no-desc"]
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


def question_digests() -> dict[str, str]:
    """The digest of every question of the catalogue, by id."""
    return {case.id: record.digest_question(case.question) for case in catalogue()}


def record_release(
    plan: RecordingOptions, environment: Environment, todo: MissingQuestions
) -> RecordingResult:
    """Ask one release what its record lacks, in as many runs as are wanted, and add the answers.

    Runs stay in a folder of their own until all are done; their logs stay if something is wrong.
    """
    if not todo.asked:
        assert todo.kept is not None
        record.save(
            record_files(plan.folder, environment.framework, environment.release)[0], todo.kept
        )
        return RecordingResult("")
    work = plan.root / ".tox" / WORK_FOLDER / environment.name
    work.mkdir(parents=True, exist_ok=True)
    parts = [work / str(run + 1) for run in range(plan.runs if todo.due else 1)]
    code = 0
    try:
        for part in parts:
            # One answer is enough to compare with the record.
            checked = todo.checked if part is parts[0] else ()
            by = _run_digest(plan, environment, todo, checked)
            if _is_done(part, by):
                continue
            _prepare(plan, environment, todo, checked, part)
            code |= _run(plan, environment, part, work / "uv-cache")
            if lacking := _find_missing(plan, environment, todo, checked, part):
                return RecordingResult(f"{lacking}\n{_log_tail(_log_file(part))}")
            (part / _DONE_FILE).write_text(by)
        made, other = _merge_runs(plan, environment, todo, parts, work / "merged")
    except BadInput as error:
        return RecordingResult(str(error))
    finally:
        if not plan.keep:
            shutil.rmtree(plan.root / ".tox" / environment.name, ignore_errors=True)
            shutil.rmtree(work / "uv-cache", ignore_errors=True)
    # The text is moved last, because a folder has a record as soon as it has the text.
    for path in made:
        shutil.move(path, plan.folder / path.name)
    tail = _log_tail(_log_file(parts[-1])) if code else ""
    for part in parts:
        shutil.rmtree(part)
    if not code:
        shutil.rmtree(work)
    note = ""
    if other.rounded:
        note = f"{len(other.rounded)} of {len(todo.checked)} answers are rounded otherwise"
    if other.told:
        head = f"{len(other.told)} of {len(todo.checked)} answers differ from the record's"
        again = f"seed {plan.seed}; what the record has was left as it is, --again asks it anew"
        return RecordingResult(
            "\n".join([f"{head} ({again}):", *other.told, *tail.splitlines()]), note=note
        )
    return RecordingResult(
        f"recorded, but tox ended with {code}\n{tail}" if code else "", note=note
    )


def _prefilled_record(
    plan: RecordingOptions, todo: MissingQuestions, checked: Sequence[str]
) -> Record | None:
    """The record with which a run starts, so that it asks only what that lacks."""
    if todo.kept is None or plan.again:
        return None
    return todo.kept.with_only(todo.kept.lines.keys() - {*checked})


def _prepare(
    plan: RecordingOptions,
    environment: Environment,
    todo: MissingQuestions,
    checked: Sequence[str],
    part: Path,
) -> None:
    """Make a fresh folder for a run, with the record with which it starts."""
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    names = (environment.framework, environment.release)
    if base := _prefilled_record(plan, todo, checked):
        record.save(record_files(part, *names)[0], base)
    if not todo.listing:
        shutil.copy(record_files(plan.folder, *names)[2], part)


def _run(plan: RecordingOptions, environment: Environment, part: Path, cache: Path) -> int:
    """Do one run into a folder; the exit code of tox."""
    # If tox runs this, its TOX_WORK_DIR would move the environments.
    place = ["--workdir", str(plan.root / ".tox")]
    command = [*plan.tox, "run", *place, "-e", environment.name, "--", *plan.words]
    own = (
        {RECORDS_VARIABLE: str(part)}
        if plan.keep
        else {RECORDS_VARIABLE: str(part), "UV_CACHE_DIR": str(cache)}
    )
    with _log_file(part).open("wb") as out:
        return subprocess.run(
            command, cwd=plan.root, env={**os.environ, **own}, stdin=subprocess.DEVNULL,
            stdout=out, stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip


# A file in the folder of a run that is done: it says what was asked, and with which code.
_DONE_FILE = "by"


def _run_digest(
    plan: RecordingOptions, environment: Environment, todo: MissingQuestions, checked: Sequence[str]
) -> str:
    code = digest_code(FRAMEWORKS[environment.framework].adapter)
    said = repr((sorted(todo.due.items()), checked, todo.listing, plan.again, plan.words))
    return f"{code} {hashlib.sha256(said.encode()).hexdigest()}"


def _is_done(part: Path, by: str) -> bool:
    written = part / _DONE_FILE
    return written.exists() and written.read_text() == by


def _find_missing(
    plan: RecordingOptions,
    environment: Environment,
    todo: MissingQuestions,
    checked: Sequence[str],
    part: Path,
) -> str:
    """What a run should have left and did not."""
    text, _, interface = record_files(part, environment.framework, environment.release)
    made, why = read_record(text, environment)
    if made is None:
        return why
    # Words for pytest may leave questions out.
    due = {} if plan.words else todo.due
    missing = [id for id, digest in due.items() if id not in made.lines
               or made.lines[id].digest != digest]  # fmt: skip
    missing += [id for id in checked if id not in made.lines]
    if missing:
        return f"{len(missing)} questions not answered, such as {missing[0]}"
    return "" if interface.exists() else "no interface"


def _log_file(part: Path) -> Path:
    return part.with_suffix(".log")


def _merge_runs(
    plan: RecordingOptions,
    environment: Environment,
    todo: MissingQuestions,
    parts: Sequence[Path],
    folder: Path,
) -> tuple[list[Path], Verification]:
    """Merge the runs with the record; its files, the text last, and the answers that differ."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = (environment.framework, environment.release)
    text, arrays, interface = record_files(folder, *names)
    runs = [record.load(record_files(part, *names)[0]) for part in parts]
    made = record.merge([run.with_only(todo.due) for run in runs])
    if todo.kept is not None and (staying := todo.kept.lines.keys() - made.lines):
        made = record.merge([todo.kept.with_only(staying), made])
    record.save(text, made)
    first, *others = [record_files(part, *names)[2] for part in parts]
    for other in others:
        if other.read_bytes() != first.read_bytes():
            found = f"another listing than {first}"
            raise BadInput(str(other), "", "", found, "the same in every run")
    shutil.copy(first, interface)
    return [interface, arrays, text], verify_answers(
        todo, runs[0], {case.id: case for case in catalogue()}
    )


def _log_tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"the end of {log}:", *(f"    {line}" for line in lines[-_TAIL_LINES:])])


def run(plan: RecordingOptions, chosen: Sequence[Environment]) -> dict[str, RecordingResult]:
    """Run every environment in turn and report progress. By name, how each fared."""
    digests, began = question_digests(), time.monotonic()
    found: dict[str, RecordingResult] = {}
    for n, environment in enumerate(chosen, start=1):
        due = find_missing_questions(plan, environment, digests)
        head = f"{n} of {len(chosen)}, {environment.name}"
        print(f"{head}: {f'{due.why}; recording' if due.why else 'there'}", flush=True)
        if due.note:
            print(f"    {due.note}", flush=True)
        if not due.why:
            found[environment.name] = RecordingResult("", ran=False)
            continue
        since = time.monotonic()
        outcome = found[environment.name] = record_release(plan, environment, due)
        took, whole = ((time.monotonic() - start) / 60 for start in (since, began))
        print(f"{head}: {outcome.failure or 'recorded'}", flush=True)
        if outcome.note:
            print(f"    {outcome.note}, as another processor may", flush=True)
        print(f"    {took:.1f} minutes, {whole:.1f} in all", flush=True)
    return found


def summary(found: Mapping[str, RecordingResult]) -> Iterable[str]:
    """What was done and what went wrong, in a few lines."""
    there = sum(not one.ran for one in found.values())
    failed = {name: one for name, one in found.items() if one.failure}
    made = len(found) - there - len(failed)
    yield f"{len(found)} environments: {there} there already, {made} recorded, {len(failed)} failed"
    for name, one in failed.items():
        yield f"    {name}: {one.failure.splitlines()[0]}"


def make_parser() -> argparse.ArgumentParser:
    """What the command understands."""
    parser = argparse.ArgumentParser("python -m suites.matrix", description=__doc__)
    parser.add_argument("pattern", nargs="*", help="environments, such as '*-jax-*'; all, if none")
    parser.add_argument("--folder", type=Path, default=RECORDS, help="where the records go")
    parser.add_argument("--runs", type=int, default=2, help="runs of each release (default: 2)")
    parser.add_argument("--again", action="store_true", help="ask what a record has once more")
    parser.add_argument("--verify", type=int, default=0, metavar="N",
                        help="ask N that a record has once more, and compare")  # fmt: skip
    parser.add_argument("--seed", type=int, default=random.randrange(10**6),
                        help="which N (default: by chance, told)")  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    return parser


def main(words: Sequence[str]) -> int:
    """The command; 1 if an environment failed, 2 if there is nothing to run."""
    at = list(words).index("--") if "--" in words else len(words)
    own, rest = words[:at], words[at + 1 :]
    given = make_parser().parse_args(own)
    if given.verify < 0 or (given.verify and (given.again or rest)):
        wanted = "a number, without --again and words for pytest, which choose otherwise"
        print(f"--verify: found {' '.join(words)}, wanted {wanted}", file=sys.stderr)
        return 2
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
    if given.verify:
        print(f"verifying {given.verify} of each record with --seed {given.seed}", flush=True)
    folder, words = given.folder.resolve(), tuple(rest)
    plan = RecordingOptions(
        tuple(tox), ROOT, folder, given.runs, given.again, given.verify, given.seed, given.keep,
        words,
    )  # fmt: skip
    found = run(plan, chosen)
    print("\n".join(summary(found)))
    return 1 if any(one.failure for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
