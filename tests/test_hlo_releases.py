"""Is HLO text read as every release of XLA prints it?

Groups in all their spellings are in `tests.test_hlo`; here is what else changed.
"""

from __future__ import annotations

import pytest

from adapters.answer import Collective
from adapters.jax_xla import hlo
from tests.test_hlo import module, read

SHORT = r"""
HloModule jit_f, entry_computation_layout={(f64[4,4]{1,0})->f64[4,8]{1,0}}, num_partitions=4

add.clone {
  x.1 = f64[] parameter(0)
  ROOT add.1 = f64[] add(x.1, x.1)
}

ENTRY main.4_spmd {
  param = f64[4,4]{1,0} parameter(0), sharding={devices=[2,2]<=[4]}
  all-gather = f64[4,8]{1,0} all-gather(param), channel_id=2, replica_groups={{0,1},{2,3}}, dimensions={1}, use_global_device_ids=true, metadata={op_name="jit(<lambda>)/jit(main)/dot_general[dimension_numbers=(((1,), (0,)), ((), ())) sharding=NamedSharding(mesh=Mesh('a': 2), spec=PartitionSpec('b',))]" source_file="a.py" source_line=10}
  ROOT all-reduce = f64[4,8]{1,0} all-reduce(all-gather), channel_id=3, replica_groups={{0,2},{1,3}}, use_global_device_ids=true, to_apply=add.clone
} // main.4_spmd

"""  # noqa: E501


def test_short_texts_are_read() -> None:
    """Dumps of jaxlib up to 0.4.38 have no signs before names and no types in heads."""
    assert read(SHORT) == (
        Collective("all-gather", ("b",), 2, 128),
        Collective("all-reduce", ("a",), 2, 256),
    )


def test_elements_of_tuples_may_have_no_line() -> None:
    """From jaxlib 0.11.1 on an operand x#2 is what a get-tuple-element took, and of its pass."""
    text = module(
        """
        %t = (f32[8,4]{1,0}, /*index=1*/(f32[8]{0}, bf16[4,2]{1,0})) opt-barrier(%x), metadata={op_name="jit(f)/transpose(jvp())/remat"}
        %n = f32[8]{0} negate(%t#1#0)
        ROOT %g = bf16[8,2]{1,0} all-gather(%t#1#1), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, dimensions={0}
        """  # noqa: E501
    )
    assert hlo.parse(text).computations["main"]["t#1#1"].operands == ("t#1",)
    assert read(text) == (Collective("all-gather", ("b",), 2, 16, "backward"),)


@pytest.mark.parametrize(
    "spelled", ["{{0,2},{1,3}}", "[2,2]<=[2,2]T(1,0)", "mesh['a'=2,'b'=2] {'a'}"]
)
def test_groups_mean_the_same_in_every_spelling(spelled: str) -> None:
    """Lists up to 0.5, then iotas, then mesh axes from 0.11 on: one axis all the while."""
    text = module(
        "ROOT %r = f32[8,4]{1,0} all-reduce(%x), channel_id=3, "
        f"replica_groups={spelled}, use_global_device_ids=true, to_apply=%add.clone"
    )
    assert read(text) == (Collective("all-reduce", ("a",), 2, 128),)
