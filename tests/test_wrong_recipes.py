"""Is a wrong training step caught? With what is missing or extra, on which axis, in which pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs import Ran, run

CASES = """
[[case]]
id = "mlp"
mesh = { tp = 2 }
recipe = "mlp-tp"

[[case]]
id = "replicas"
mesh = { dp_replicate = 2, fsdp = 2 }
recipe = "block-hsdp"

[[case]]
id = "experts"
mesh = { ep = 2 }
recipe = "moe-ep"
"""


def trained(folder: Path, wrong: str, *args: str) -> Ran:
    """A run of the steps above with one mistake in their plans."""
    path = folder / "cases.toml"
    path.write_text(CASES)
    return run(folder, "-p", "tests.toys.untrained", f"--cases={path}", *args, TOY_WRONG=wrong)


def test_right_recipes_pass(tmp_path: Path) -> None:
    """The same adapters without a mistake: what is found below comes from the mistakes alone."""
    ran = trained(tmp_path, "")
    assert ran.code == 0, ran.out


@pytest.mark.parametrize(
    ("wrong", "case", "other", "aspects", "told"),
    [
        (
            "replicas forgotten", "replicas", "jax", {"gradients", "collectives", "soundness"},
            "the backward pass lacks all-reduce(dp_replicate) of 3,136 B",
        ),
        (
            "router left alone", "experts", "jax", {"gradients", "collectives"},
            "the backward pass lacks all-reduce(ep) of 128 B",
        ),
        (
            "split dims exchanged", "mlp", "jax", {"layout", "collectives"},
            "[S(0)]",
        ),
        (
            "gathered in between", "mlp", "jax", {"collectives"},
            "the forward pass has, beyond its parallel plan, all-gather(tp) of 128 B",
        ),
        ("split dims exchanged", "mlp", "torch", {"layout", "collectives"}, "P('tp')"),
        (
            "gathered in between", "mlp", "torch", {"collectives"},
            "the forward pass has, beyond its parallel plan, all-gather(tp)",
        ),
    ],
)  # fmt: skip
def test_a_wrong_plan_is_told_by_what_it_costs(
    tmp_path: Path, wrong: str, case: str, other: str, aspects: set[str], told: str
) -> None:
    """A reduction that is missing, a wrong split dim, a gather too many: in its aspects."""
    # What costs too much fails a user's own case only if it is told to.
    args = (f"--{other}=off", "-k", case, "--fail-on=wrong,refused,costly")
    ran = trained(tmp_path, wrong, *args)
    assert ran.code == 1
    assert aspects <= {aspect for _, _, aspect, _ in ran.diverging()}
    assert told in ran.out, ran.out
