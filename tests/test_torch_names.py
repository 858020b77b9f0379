"""Is the table of torch's names right? Does an answer say which name a release lacks?"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.answer import Done, Unsupported
from adapters.release_names import find_location, format_missing
from adapters.torch_dtensor.names import NAMES, format_imports
from adapters.torch_dtensor.source_lines import step_source
from cases.model import Question, Recipe, Step, mesh
from suites.sources import pinned_releases
from tests.torch_worker import LINE, ROOT, SIMPLE, Live

OLDER = "2.7.1"

# Which names this torch has at their newest place, with the keywords in their names.
THERE = r"""
import inspect, json, re
import torch
from adapters.release_names import import_path
from adapters.torch_dtensor import compat
from adapters.torch_dtensor.names import NAMES

def there(name):
    try:
        found = import_path(NAMES[name][0].path)
    except (AttributeError, ImportError):
        return False
    words = re.findall(r"(\w+)=", name)
    return not words or {*words} <= {*inspect.signature(found).parameters}

print(json.dumps([str(torch.__version__), {name: there(name) for name in NAMES}]))
"""

# Of one program, what the recorder notes where it stands in front of single ops, and where it
# can only stand in front of every op; and what groups that are named by their ranks are along.
COUNTS = r"""
import json
import torch
import torch.distributed as dist
from adapters.torch_dtensor import recorder
from adapters.torch_dtensor.compat import DeviceMesh, DTensor, Partial, Replicate, Shard
from adapters.torch_dtensor.fake_world import fake_world
from adapters.torch_dtensor.collective_kinds import group_name
from cases.model import mesh

def noted(made):
    with fake_world(4):
        on = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("a", "b"))
        x = DTensor.from_local(torch.ones(2, 4), on, [Shard(0), Shard(1)], run_check=False)
        x.requires_grad_()
        with made:
            whole = x.redistribute(placements=[Replicate(), Replicate()])
            whole.to_local(grad_placements=[Partial(), Partial()]).sum().backward()
            dist.all_reduce(torch.ones(3))
        names = [str(group.group_name) for group in on.get_all_groups()]
        axes = recorder.GroupAxes(0, [(mesh({"a": 2, "b": 2}), names)])
        return [[one.kind, one.axes, one.group, one.bytes, one.pass_] for one in made.take(axes)]

before = noted(recorder.Recorder())
recorder.has = lambda wanted: wanted != "OpOverload.redispatch"
after = noted(recorder.Recorder())
axes = recorder.GroupAxes(0, [(mesh({"a": 1, "b": 2, "c": 2}), ["g", "h", "i"])])
listed = [axes(group_name(ranks)) for ranks in ([0, 1], [0, 2], [0, 1, 2, 3], [0], [0, 3])]
print(json.dumps([before, after, listed]))
"""


def _run(script: str) -> object:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_place_is_there_and_no_other() -> None:
    """In the installed release, a name is at its newest location exactly if the table says so."""
    release, found = _run(THERE)  # type: ignore[misc]
    assert found == {name: find_location(NAMES, name, release) is NAMES[name][0] for name in NAMES}


def test_places_are_in_order() -> None:
    """Locations are sorted, newest first, so that the first that fits is the right one."""
    for name, places in NAMES.items():
        dates = [tuple(map(int, one.since.split("."))) for one in places]
        assert dates == sorted(set(dates), reverse=True), name


@pytest.mark.parametrize(
    ("release", "wanted"),
    [
        ("2.4.1+cu121", "torch.distributed._tensor.DTensor"),
        ("2.5.0", "torch.distributed.tensor.DTensor"),
        ("2.5.0.dev20240901+cpu", "torch.distributed.tensor.DTensor"),
    ],
)
def test_a_place_is_chosen_by_release(release: str, wanted: str) -> None:
    """Local tags do not matter, and a pre-release counts as its release."""
    found = find_location(NAMES, "DTensor", release)
    assert found is not None
    assert found.path == wanted


def test_what_is_missing_is_named_with_the_release_that_has_it() -> None:
    """A release before that has no location of the name."""
    said = "torch 2.2.2 has no local_map, which is there since 2.4"
    assert format_missing(NAMES, "local_map", "torch", "2.2.2+cu121") == said
    assert find_location(NAMES, "local_map", "2.2.2") is None


def test_scripts_import_what_their_release_has() -> None:
    """Before 2.5 from the private package; before 2.4 Partial takes its reduction as an enum."""
    assert "from torch.distributed._tensor.placement_types import _Partial" in format_imports(
        "2.2.2"
    )
    assert format_imports("2.2.2")[-1].startswith("Partial = lambda kind='sum': _Partial(")
    old = "from torch.distributed._tensor import DTensor, Partial, Replicate, Shard"
    assert f"{old}, distribute_tensor" in format_imports("2.4.1")
    assert not any("._tensor" in line or "_Partial" in line for line in format_imports("2.5.1"))
    full = Step("y", "full", (), {"shape": [2], "value": 1})
    assert step_source(full, LINE).startswith("dtensor.full(")
    assert "from torch.distributed import tensor as dtensor" in format_imports("2.5.1")


def test_what_a_release_lacks_ends_a_recipe_by_name(tmp_path: Path) -> None:
    """Where FSDP can only average, its recipe is unsupported. Other questions are answered."""
    recipe = Recipe("block-fsdp")
    asked = Question("old", mesh({"fsdp": 2}), recipe=recipe, check=("loss",))
    live = Live(tmp_path / "printed", "tests.toys.older_torch")
    try:
        why = "torch 2.7.1 has no FSDPModule.set_gradient_divide_factor, which is there since 2.8"
        assert live.ask(asked).end == Unsupported(why, "place")
        assert live.ask(SIMPLE).end == Done()
    finally:
        live.close()


def test_a_refused_offset_is_a_complaint(tmp_path: Path) -> None:
    """The release is known to give every offset. The answer has none, and a complaint instead."""
    live = Live(tmp_path / "printed", "tests.toys.no_offsets_torch")
    try:
        answer = live.ask(SIMPLE)
    finally:
        live.close()
    assert answer.end == Done()
    assert "rank 0: no offset of y: ValueError: no offset here" in answer.complaints


def test_a_recorder_in_front_of_every_op_notes_the_same() -> None:
    """The recorder for old releases counts the same collectives, forward and backward."""
    before, after, listed = _run(COUNTS)  # type: ignore[misc]
    assert after == before
    assert {"forward", "backward"} <= {one[-1] for one in before}
    assert len(before) > 3
    assert listed == [[["c"], 2], [["b"], 2], [["b", "c"], 4], [["a"], 1], [[], 2]]


def test_the_table_is_held_against_the_release_that_the_project_runs() -> None:
    """The pinned release has every name of the table, so that each location is checked."""
    lacking = [
        name for name in NAMES if find_location(NAMES, name, pinned_releases()["torch"]) is None
    ]
    assert lacking == []
