"""Does `python -m reports.tell` say what it was asked, or in one line why it cannot?"""

from __future__ import annotations

from pathlib import Path

import pytest

from reports import tell


def test_a_pattern_tells_every_case_that_matches(capsys: pytest.CaptureFixture[str]) -> None:
    """With shards by device, and each fact with the subjects that report it."""
    assert tell.main(["lesson-s0-to-*"]) == 0
    out = capsys.readouterr().out
    assert "lesson-s0-to-r    mesh x=4" in out
    assert "lesson-s0-to-s1    mesh x=4" in out
    assert "  full: all-gather(x)    (torch, jax/explicit)" in out


def test_an_unknown_case_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """No empty output that ends well."""
    assert tell.main(["lesson-s0-to-q"]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "lesson-s0-to-q" in error
    assert "lesson-s0-to-r" in error


def test_a_folder_without_records_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what is wanted there."""
    assert tell.main(["lesson-s0-to-r", f"--records={tmp_path}"]) == 2
    assert "found no record, wanted a folder of records" in capsys.readouterr().err


def test_no_case_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """As everywhere on the command line."""
    with pytest.raises(SystemExit) as ended:
        tell.main([])
    assert ended.value.code == 2
    assert "usage: python -m reports.tell" in capsys.readouterr().err
