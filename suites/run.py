"""What does a run keep between its items? The cases, the ledger, and where answers come from.

The one place that ties pytest to everything else; `conftest` only calls it.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from packaging.version import InvalidVersion, Version

from adapters import record
from adapters.answer import Answer
from adapters.protocol import Hello, Promises
from adapters.registry import FRAMEWORKS, check_registry, subjects
from adapters.worker_client import WorkerError
from cases.catalogue import FAMILIES, family
from cases.dry_run import as_dry_run
from cases.errors import BadInput
from cases.ledger import LEDGER, Cause, load_ledger
from cases.ledger import check_unique as check_ledger
from cases.load import check_unique, load
from cases.model import Case, Question, slug
from suites.failure import failure_text, format_endings
from suites.judge import Judgement, judge
from suites.observation import SEVERITIES, Severity
from suites.record_index import find_records
from suites.recording import Recording
from suites.sources import (
    RECORDS,
    RecordedAnswers,
    SourceChoice,
    Sources,
    most_devices,
    public_release,
)
from suites.truth import check_defined
from suites.verdict import RECORD, Verdict

_OPTIONS = (
    "cases",
    "exhaustive",
    "dry-run",
    "ledger",
    "baseline",
    "fail-on",
    *FRAMEWORKS,
    *(f"{name}-python" for name in FRAMEWORKS),
)


# What fails a case of the catalogue, and what fails a user's own case, unless --fail-on says.
FAILING: tuple[Severity, ...] = ("wrong", "refused", "costly")
FAILING_OWN: tuple[Severity, ...] = ("wrong", "refused")


class Judged(msgspec.Struct, frozen=True):
    """The outcome of one item, and what its failure text needs.

    ``failing``: the indices of the verdicts that fail it. ``own``: whether the case is a user's
    own. ``scripts``: file names of the stand-alone scripts that show what fails.
    """

    judgement: Judgement
    answers: dict[str, Answer]
    hellos: dict[str, Hello]
    command: str
    failing: tuple[int, ...] = ()
    own: bool = False
    scripts: tuple[str, ...] = ()
    folder: str = ""

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdict lines."""
        return self.judgement.verdicts


class Run:
    """Everything that lives as long as the pytest session of one process."""

    def __init__(
        self,
        config: pytest.Config,
        own: tuple[Case, ...] | None,
        ledger: tuple[Cause, ...],
        excusing: frozenset[str] | None,
        baseline: tuple[Path, ...],
    ):
        self._config = config
        self._own = own
        self._ledger = ledger
        # The project's ledger names the causes of what a user's own cases meet. It excuses nothing
        # there.
        self._excusing = excusing
        self._baseline = baseline
        self._sources: Sources | None = None
        self._names: tuple[str, ...] = ()
        self._kept: list[tuple[Question, dict[str, Answer]]] = []
        option = config.getoption
        self._only_new: bool = option("--only-new")
        self._recording = Recording(Path(option("--record") or ""), self._only_new)
        self.left_out = 0
        self._distributed = hasattr(config, "workerinput")
        # By id, the questions with data of cases that are run as dry runs.
        self._real: dict[str, Question] = {}

    def cases_for(self, test: str) -> Sequence[Case]:
        """The cases of a test function: a user's own, or those of the family in its name."""
        cases = self._own
        if cases is None:
            name = test.removeprefix("test_")
            assert name in FAMILIES, f"no family is called {name}"
            try:
                cases = family(name, self._config.getoption("--exhaustive"))
            except BadInput as error:
                raise pytest.Collector.CollectError(str(error)) from None
        if not self._config.getoption("--dry-run"):
            return cases
        self._real |= {case.id: case.question for case in cases if case.question.mode == "real"}
        return tuple(map(as_dry_run, cases))

    def already_recorded(self, items: Sequence[pytest.Item]) -> list[pytest.Item]:
        """The items that ``--only-new`` leaves out, because the records have them."""
        questions = _questions(items)
        if not self._only_new or not questions:
            return []
        self._start(questions)
        assert self._sources is not None
        try:
            lacking = self._recording.lacking(self._sources.greeted(), questions)
        except (WorkerError, BadInput) as error:
            pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
        cases = [(item, _case(item)) for item in items]
        left = [item for item, case in cases if case and case.question.id not in lacking]
        self.left_out = len(left)
        return left

    def begin(self, items: Sequence[pytest.Item]) -> None:
        """Start the frameworks if there is anything to ask, and ask ahead."""
        questions = _questions(items)
        modules = {item.nodeid.partition("::")[0].rpartition("/")[2] for item in items}
        self._names = (*modules, *(item.name for item in items))
        if not questions:
            return
        if self._sources is None:
            self._start(questions)
        assert self._sources is not None
        if not self._distributed:
            for question in questions:
                self._sources.ask(question)

    def _start(self, questions: Sequence[Question]) -> None:
        option = self._config.getoption
        choices = {
            name: SourceChoice(option(f"--{name}"), option(f"--{name}-python") or sys.executable)
            for name in FRAMEWORKS
        }
        # A process of pytest-xdist asks one question ahead: it does not know which items others
        # will take.
        self._sources = Sources(
            choices, devices=most_devices(questions), seconds=option("--deadline"),
            ahead=2 if self._distributed else 64, spread=not self._distributed,
            records=self._baseline, named=bool(option("--baseline")),
        )  # fmt: skip

    def ask_ahead(self, item: pytest.Item, following: pytest.Item | None) -> None:
        """Ask the question of this item, and that of the next."""
        if self._distributed and self._sources is not None:
            for one in (item, following):
                case = _case(one) if one is not None else None
                if case is not None:
                    self._sources.ask(case.question)

    def judge(self, item: pytest.Item) -> Judged:
        """The verdicts of an item's case. Waits for the answers."""
        case = _case(item)
        assert case is not None
        assert self._sources is not None
        try:
            answers = self._sources.answers(case.question)
            with_data = self._real.get(case.id)
            pins = self._sources.pins(with_data or case.question)
        except (WorkerError, BadInput) as error:
            pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
        if self._config.getoption("--record"):
            self._kept.append((case.question, answers))
        hellos = self._sources.hellos()
        judgement = judge(
            case, answers, self._ledger, promises=promised_fields(hellos), excusing=self._excusing,
            pins=None if with_data else pins.same, nearest=None if with_data else pins.nearest,
            real=pins.same if with_data else None,
            pinned=bool(self._config.getoption("--baseline")) and not with_data,
        )  # fmt: skip
        failing = tuple(
            index for index, one in enumerate(judgement.verdicts) if self._fails(one, pins)
        )
        return Judged(
            judgement, answers, hellos, self._command(item), failing, self._own is not None,
            folder=self._config.getoption("--repro") or "",
        )  # fmt: skip

    def _fails(self, verdict: Verdict, pins: RecordedAnswers) -> bool:
        """Whether a verdict fails its case."""
        if verdict.verdict == "known":
            return False
        chosen = self._config.getoption("--fail-on")
        # A severity that is named in --fail-on fails, even if it fails nothing by default.
        if chosen and verdict.severity is not None and verdict.severity in chosen.split(","):
            return True
        if verdict.verdict != "divergence":
            return False
        if verdict.against == RECORD or chosen:
            return verdict.against == RECORD
        if self._own is not None:
            return verdict.severity in FAILING_OWN
        # Without a record of this very environment, nothing says what a plan costs here.
        elsewhere = verdict.severity == "costly" and verdict.subject in pins.nearest
        return verdict.severity in FAILING and not elsewhere

    def _command(self, item: pytest.Item) -> str:
        option = self._config.getoption
        # From a folder other than the checkout, the paths of the test and of the files are
        # absolute.
        root, here = self._config.rootpath, Path.cwd()
        module = item.nodeid.partition("::")[0]
        words = ["pytest"]
        if here != root:
            words.append(str(root / module))
        elif self._own is None:
            words.append(module)
        for name in _OPTIONS:
            value = option(f"--{name}")
            if value is True:
                words.append(f"--{name}")
            else:
                for one in value if isinstance(value, list) else [value]:
                    if one and one != "live":
                        path = here / str(one)
                        told = path if here != root and path.exists() else one
                        words.append(f"--{name}={told}")
        return shlex.join([*words, "-k", self._select_expression(item)])

    def _select_expression(self, item: pytest.Item) -> str:
        """What ``-k`` selects this item alone by: its id, in brackets if other ids contain it."""
        case = _case(item)
        assert case is not None
        id = item_id(case)
        # pytest also matches names of modules and functions, and has three keywords of its own.
        within = [name for name in self._names if id in name.lower()]
        return id if within == [item.name] and id not in ("and", "or", "not") else f"[{id}]"

    def close(self) -> None:
        """Write what is to be recorded, and end every process."""
        if self._sources is None:
            return
        if self._kept:
            self._recording.write(self._sources.greeted(), self._kept)
        self._sources.close()


RUN = pytest.StashKey[Run]()
JUDGED = pytest.StashKey[Judged]()


def prepare(config: pytest.Config) -> Run:
    """Check every option and read every file that was named; start nothing.

    Raises:
        pytest.UsageError: one line that says what is wrong.
    """
    option = config.getoption
    try:
        check_registry()
        own = None
        if option("--cases"):
            own = load(Path(option("--cases")))
            check_unique(own)
            for case in own:
                check_defined(case)
        known = load_ledger(LEDGER, subjects())
        theirs = [
            cause for path in option("--ledger") for cause in load_ledger(Path(path), subjects())
        ]
        # A user's causes come first, so that they win where both fit.
        ledger = (*theirs, *known)
        check_ledger(ledger)
        excusing = None if own is None else frozenset(cause.id for cause in theirs)
        baseline = _baseline(option("--baseline"), own is not None)
        for name, row in FRAMEWORKS.items():
            if option(f"--{name}") not in ("live", "off"):
                record.load(option(f"--{name}"), name, row.subjects)
        _check_options(config)
        _check_recording(config)
        _check_dry_run(config)
    except BadInput as error:
        raise pytest.UsageError(str(error)) from None
    return Run(config, own, ledger, excusing, baseline)


def _baseline(paths: Sequence[str], own: bool) -> tuple[Path, ...]:
    """The records that pin a run: those that are named, or for the catalogue the project's own."""
    if not paths:
        return () if own else tuple(path for _, path in find_records(RECORDS))
    found: list[Path] = []
    for text in paths:
        path = Path(text)
        found += [one for _, one in find_records(path)] if path.is_dir() else [path]
    for path in found:
        header = record.read_header(path)
        if header.framework not in FRAMEWORKS:
            known = ", ".join(FRAMEWORKS)
            raise BadInput(str(path), "", "framework", repr(header.framework), f"one of {known}")
        try:
            Version(public_release(header.release))
        except InvalidVersion:
            wanted = "a version such as 2.13.0"
            raise BadInput(str(path), "", "release", repr(header.release), wanted) from None
        record.load(path, header.framework, FRAMEWORKS[header.framework].subjects)
    return tuple(found)


def promised_fields(hellos: Mapping[str, Hello]) -> Promises:
    """By subject, the fields that its route has promised to show."""
    return {name: shown for hello in hellos.values() for name, shown in hello.promises.items()}


def _check_options(config: pytest.Config) -> None:
    option = config.getoption
    if all(option(f"--{name}") == "off" for name in FRAMEWORKS):
        found = " ".join(f"--{name}=off" for name in FRAMEWORKS)
        if not option("--record"):
            raise pytest.UsageError(f"found {found}, wanted one framework at least")
    for one in option("--fail-on").split(",") if option("--fail-on") else ():
        if one not in SEVERITIES:
            wanted = f"one or more of {', '.join(SEVERITIES)}, with commas between"
            raise pytest.UsageError(f"--fail-on: found {one!r}, wanted {wanted}")
    if not 0 < option("--deadline") < math.inf:
        raise pytest.UsageError(
            f"--deadline: found {option('--deadline')}, wanted seconds, more than 0"
        )
    for name in ("--verdicts", "--record"):
        path = option(name)
        if path and (
            not Path(path).parent.is_dir() or (name == "--verdicts" and Path(path).is_dir())
        ):
            raise pytest.UsageError(f"{name}: found {path}, wanted a file in a folder that exists")
    folder = option("--repro")
    fresh = folder and not os.path.lexists(folder) and Path(folder).parent.is_dir()
    if folder and not os.path.isdir(folder) and not fresh:
        wanted = "a folder, or a new one in a folder that exists"
        raise pytest.UsageError(f"--repro: found {folder}, wanted {wanted}")


def _check_recording(config: pytest.Config) -> None:
    target = config.getoption("--record")
    if not target:
        if config.getoption("--only-new"):
            raise pytest.UsageError("--only-new: found no --record, wanted the one that is to grow")
        return
    live = [name for name in FRAMEWORKS if config.getoption(f"--{name}") == "live"]
    if hasattr(config, "workerinput") or getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--record: found -n, wanted one process, so that one file is whole")
    if not live:
        raise pytest.UsageError("--record: found no live framework, wanted one to record")
    if target.endswith(os.sep) and not os.path.isdir(target):
        raise pytest.UsageError(f"--record: found no folder {target}, wanted one that exists")
    if len(live) > 1 and not os.path.isdir(target):
        both = " and ".join(live)
        found = "a file" if os.path.exists(target) else "no folder"
        raise pytest.UsageError(
            f"--record: found {found} {target}, wanted a folder that exists:"
            f" the answers of {both} are a file each"
        )


def _check_dry_run(config: pytest.Config) -> None:
    if not config.getoption("--dry-run"):
        return
    for name in FRAMEWORKS:
        source = config.getoption(f"--{name}")
        if source not in ("live", "off"):
            raise pytest.UsageError(
                f"--dry-run: found --{name}={source}, wanted {name} live, or off"
            )
    for name in ("--record", "--repro"):
        if config.getoption(name):
            raise pytest.UsageError(f"--dry-run: found {name}, wanted none: a dry run has no data")


def _questions(items: Sequence[pytest.Item]) -> list[Question]:
    return [case.question for item in items if (case := _case(item)) is not None]


def _case(item: pytest.Item) -> Case | None:
    spec = getattr(item, "callspec", None)
    case = None if spec is None else spec.params.get("case")
    return case if isinstance(case, Case) else None


def item_id(case: Case) -> str:
    """The pytest id of a case."""
    return slug(case.id)


def pass_or_fail(case: Case, judged: Judged) -> None:
    """Pass, fail with the whole story, or skip because nothing was comparable."""
    __tracebackhide__ = True
    if judged.failing:
        text = failure_text(
            case, judged.judgement, judged.failing, judged.answers, judged.command, own=judged.own,
            scripts=judged.scripts, folder=judged.folder,
        )  # fmt: skip
        pytest.fail(text, pytrace=False)
    if {verdict.verdict for verdict in judged.verdicts} <= {"not comparable"}:
        pytest.skip(f"nothing to compare: {format_endings(judged.answers)}")
