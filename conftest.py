"""Options, fixtures and hooks of pytest for the suites; everything that decides is in `suites/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from adapters.registry import FRAMEWORKS
from cases.errors import BadInput
from cases.model import Case
from reports.repro import ScriptWriter, check_scripts, make_scripts
from suites import run
from suites.summary import Summary, attach

HERE = Path(__file__).parent
REPRO = pytest.StashKey[ScriptWriter]()
# The texts of the stand-alone scripts of an item by file name, and why there are no others.
SCRIPTS = pytest.StashKey[tuple[dict[str, str], list[str]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the suite."""
    group = parser.getgroup("shard parity")
    group.addoption("--cases", metavar="FILE_OR_FOLDER", help="run these cases, not the catalogue")
    group.addoption("--exhaustive", action="store_true", help="every combination, not a sample")
    group.addoption("--dry-run", "--plan", action="store_true",
                    help="with no data: layouts, collectives, sizes")  # fmt: skip
    group.addoption("--verdicts", metavar="FILE", help="write one JSON line per verdict")
    group.addoption("--ledger", metavar="FILE", action="append", default=[],
                    help="causes of your own, which excuse what they explain")  # fmt: skip
    group.addoption("--baseline", metavar="FILE_OR_FOLDER", action="append", default=[],
                    help="records that your own cases must not differ from")  # fmt: skip
    group.addoption("--fail-on", metavar="SEVERITIES", default="",
                    help="what fails a case: wrong,refused,… (default for your own cases:"
                    " wrong,refused; for the catalogue: wrong,refused,costly)")  # fmt: skip
    group.addoption("--record", metavar="FILE_OR_FOLDER",
                    help="keep the answers of the frameworks that run live")  # fmt: skip
    group.addoption("--only-new", action="store_true",
                    help="ask what the record of --record lacks, and add it to that")  # fmt: skip
    group.addoption("--repro", metavar="DIR",
                    help="write stand-alone scripts of what fails or is known")  # fmt: skip
    group.addoption("--deadline", metavar="SECONDS", type=float, default=30.0,
                    help="for one answer (default: 30)")  # fmt: skip
    for name in FRAMEWORKS:
        group.addoption(f"--{name}", metavar="live|off|FILE", default="live",
                        help=f"run {name}, leave it out, or read a record of it")  # fmt: skip
        group.addoption(f"--{name}-python", metavar="PATH",
                        help=f"the interpreter that has {name}")  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Read and check every file that was named, before anything starts."""
    if not hasattr(config, "workerinput"):
        verdicts = config.getoption("--verdicts")
        own = bool(config.getoption("--cases"))
        summary = Summary(Path(verdicts) if verdicts else None, own)
        config.pluginmanager.register(summary, "summary")
    config.stash[run.RUN] = run.prepare(config)
    if folder := config.getoption("--repro"):
        try:
            check_scripts()
        except BadInput as error:
            raise pytest.UsageError(str(error)) from None
        config.stash[REPRO] = ScriptWriter(Path(folder))
        config.pluginmanager.register(config.stash[REPRO], "repro")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect the catalogue's modules or the one for a user's cases, never both."""
    if collection_path.parent != HERE / "suites" or not collection_path.name.startswith("test_"):
        return None
    own = collection_path.name == "test_cases.py"
    return own != bool(config.getoption("--cases")) or None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item per case for a test that has a case ``judged``."""
    if "judged" in metafunc.fixturenames:
        cases = metafunc.config.stash[run.RUN].cases_for(metafunc.function.__name__)
        metafunc.parametrize("case", cases, ids=run.item_id)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--only-new``, leave out the items that the record has."""
    if left := {*config.stash[run.RUN].already_recorded(items)}:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """End well if there was nothing new to ask."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash[run.RUN].left_out:
        session.exitstatus = pytest.ExitCode.OK


def pytest_collection_finish(session: pytest.Session) -> None:
    """Put every selected question to the frameworks before the first item runs."""
    if not session.config.option.collectonly:
        session.config.stash[run.RUN].begin(session.items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Under pytest-xdist, ask the question of an item and that of the next."""
    item.config.stash[run.RUN].ask_ahead(item, nextitem)


@pytest.fixture
def judged(case: Case, request: pytest.FixtureRequest) -> run.Judged:
    """The verdicts of the item's case, which are sent along with its report."""
    judged = request.config.stash[run.RUN].judge(request.node)
    if judged.failing or REPRO in request.config.stash:
        releases = {name: hello.release for name, hello in judged.hellos.items()}
        scripts = make_scripts(case, judged.judgement, judged.answers, releases)
        request.node.stash[SCRIPTS] = scripts
        judged = replace(judged, scripts=tuple(scripts[0]))
    request.node.stash[run.JUDGED] = judged
    return judged


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Send verdicts with the report of the call."""
    report = yield
    judged = item.stash.get(run.JUDGED, None)
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None and crash.message.startswith("Failed: "):
        # A terminal cuts the short line off where it gets too long, so it begins with what matters.
        crash.message = crash.message.removeprefix("Failed: ")
    if judged is not None and call.when == "call":
        attach(report, judged.verdicts, judged.hellos)
        if repro := item.config.stash.get(REPRO, None):
            repro.write(report, *item.stash[SCRIPTS])
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave no process behind, however the run ended."""
    if run.RUN in config.stash:
        config.stash[run.RUN].close()
