"""Which relations does a wrong value have to the right one?"""

from __future__ import annotations

import numpy as np

from cases.arrays import Array, pack
from cases.model import Tolerance
from suites.relations import relations

EXACT = Tolerance(0.0, 0.0, "exact")


def _array(*numbers: float) -> Array:
    return pack(np.array(numbers, np.float32))


def test_a_number_added_to_everything_is_told() -> None:
    found = relations(_array(1, 2, 4), _array(4, 5, 7), EXACT)
    assert found == {"all elements", "plus a number"}


def test_unlike_numbers_added_are_no_number() -> None:
    assert "plus a number" not in relations(_array(1, 2, 4), _array(4, 5, 8), EXACT)


def test_an_operand_that_stayed_as_it_was_had_nothing_added() -> None:
    found = relations(_array(1, 2, 4), _array(0, 1, 3), EXACT, [_array(0, 1, 3)])
    assert found == {"all elements", "operand unchanged"}


def test_of_one_number_only_a_whole_difference_says_something() -> None:
    assert "plus a number" in relations(_array(38), _array(68), EXACT)
    assert "plus a number" not in relations(_array(38), _array(68.5), EXACT)
