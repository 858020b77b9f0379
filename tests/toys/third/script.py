"""Which program shows a fault of the third framework? One of the op that its library has."""

from __future__ import annotations

from cases.model import Case
from reports.array_source import array_expression
from reports.faults import Fault, NoScript
from reports.script_head import script_comment


def script(case: Case, fault: Fault, release: str) -> str:
    """The text of the script; it exits with 1 if the fault shows.

    Raises:
        NoScript: it is no fault of a value, or not of that op.
    """
    step = next((one for one in case.question.steps if one.result == fault.step), None)
    if step is None or step.op != "negative" or fault.check != "full":
        raise NoScript("the library has another op")
    (given,) = (one for one in case.question.inputs if one.name == step.args[0])
    assert given.value is not None
    return "\n".join([
        *script_comment(case, fault, "python FILE"),
        "import sys",
        "import numpy as np",
        "from tests.toys.third import toyshards",
        f"got = toyshards.negative({array_expression(given.value, 'np')})",
        f"wanted = {array_expression(fault.arrays[0], 'np')}",
        f"print(toyshards.__version__, {release!r}, 'wanted', wanted, 'got', got)",
        "sys.exit(not np.array_equal(wanted, got))",
        "",
    ])  # fmt: skip
