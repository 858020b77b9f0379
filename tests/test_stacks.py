"""Is a stack told without the frames of this suite, and all else as it was?"""

from __future__ import annotations

import faulthandler
import tempfile

import pytest

from adapters import stacks
from adapters.stacks import ONLY_OWN_FRAMES, remove_own_frames
from tests.runs import ROOT

TORCH = "/usr/lib/python3/site-packages/torch/distributed"
RANK = f"""\
Current thread 0x00007f6f5c1a2740 (most recent call first):
  File "{TORCH}/_functional_collectives.py", line 10 in wait
  File "{ROOT}/adapters/torch_dtensor/recorder.py", line 68 in kernel
  File "/usr/lib/python3.11/contextlib.py", line 81 in inner
  File "{TORCH}/tensor/_api.py", line 20 in full_tensor
  File "<line>", line 1 in <module>
  File "{ROOT}/adapters/torch_dtensor/evaluate.py", line 250 in _attempt
  File "/usr/lib/python3.11/functools.py", line 3 in call
  File "{ROOT}/adapters/worker.py", line 50 in main
  File "<frozen runpy>", line 88 in _run_code"""
TOLD = f"""\
  File "{TORCH}/_functional_collectives.py", line 10 in wait
  File "/usr/lib/python3.11/contextlib.py", line 81 in inner
  File "{TORCH}/tensor/_api.py", line 20 in full_tensor
  File "<line>", line 1 in <module>"""


def test_frames_of_the_framework_and_the_program_are_kept_in_order() -> None:
    """Without an address: a rank at the same place has the same text."""
    _, *frames = RANK.splitlines()
    other = "\n".join(["Stack (most recent call first):", *frames])
    # What the standard library does between frames of ours is ours.
    between = '\n  File "/usr/lib/python3.11/functools.py", line 3 in call'
    assert remove_own_frames(RANK) == remove_own_frames(other) == TOLD + between


def test_a_process_that_waits_for_this_suite_is_told_so() -> None:
    """It has no other frames."""
    head, *_ = RANK.splitlines()
    ours = f'{head}\n  File "{ROOT}/adapters/torch_dtensor/rank_messages.py", line 160 in receive'
    assert remove_own_frames(ours) == ONLY_OWN_FRAMES


def test_threads_that_have_frames_are_told_apart() -> None:
    """One without is left out; a user's file is not ours, wherever it lies."""
    _, *frames = RANK.splitlines()
    first = "(most recent call first):"
    idle = f'Thread 0x00007f11 [idle] {first}\n  File "{ROOT}/suites/run.py", line 1 in f'
    user = f'Thread 0x00007f22 {first}\n  File "/home/me/attention.py", line 7 in f'
    text = "\n".join(["chatter", idle, user, RANK])
    told = remove_own_frames(text).splitlines()
    assert told[:3] == ["chatter", *user.splitlines()]
    assert told[3] == RANK.splitlines()[0]
    assert frames[0] in told
    assert str(ROOT) not in remove_own_frames(text)
    assert remove_own_frames(user) == '  File "/home/me/attention.py", line 7 in f'


def test_what_is_no_stack_is_left_as_it_is() -> None:
    """A sentence that there is none, or what a process printed."""
    for text in ("", "(no stack in 0.4 s)", "about to abort\nnow"):
        assert remove_own_frames(text) == text


@pytest.mark.parametrize("every", [False, True])
def test_a_stack_of_this_python_is_read(every: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As faulthandler writes it, of one thread or of every; this file stands in for the suite's."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=every)
        file.seek(0)
        text = file.read()
    assert "in test_a_stack_of_this_python_is_read" in remove_own_frames(text)
    monkeypatch.setattr(stacks, "_OURS", (f"{ROOT}/tests/",))
    shown = remove_own_frames(text)
    assert "test_stacks.py" not in shown
    # pytest-xdist has a thread of its own, which is not the suite's.
    assert every or shown == ONLY_OWN_FRAMES
