"""Families are those of a plain loop over the values; keys are gathered in one pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibidem.errors import UsageError
from ibidem.learn.cluster import families as families_module
from ibidem.learn.cluster import group_by_value


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.integers(0, 12), max_size=80),
    excluded=st.lists(st.integers(-2, 15), max_size=4),
    chunk=st.sampled_from([1, 7, 1000]),
)
def test_every_entry_is_in_its_family_in_order(values: list[int], excluded: list[int], chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(families_module, "_CHUNK", chunk)
        families = group_by_value(np.array(values, np.int32), excluded)
    expected = {
        value: [entry for entry, other in enumerate(values) if other == value]
        for value in sorted(set(values) - set(excluded))
    }
    assert families.values.tolist() == list(expected)
    assert [families.entries(i).tolist() for i in range(len(families))] == list(expected.values())
    assert families.sizes.tolist() == [len(entries) for entries in expected.values()]
    assert families.order.dtype == np.int32


def test_a_sample_depends_on_seed_and_value_alone() -> None:
    values = np.repeat(np.array([3, 8, 9], np.int32), [50, 60, 70])
    families = group_by_value(values)
    sample = families.sample(1, 20, seed=4)
    assert len(set(sample.tolist())) == 20
    assert set(sample.tolist()) < set(families.entries(1).tolist())
    assert (np.diff(sample) > 0).all()
    # The same family among others, or by itself, or sampled again: the same places in it.
    alone = group_by_value(values[values == 8])
    assert (alone.sample(0, 20, seed=4) + 50).tolist() == sample.tolist()
    families.sample(2, 20, seed=4)
    assert families.sample(1, 20, seed=4).tolist() == sample.tolist()
    assert families.sample(1, 20, seed=5).tolist() != sample.tolist()
    renamed = group_by_value(np.where(values == 8, 7, values))
    assert renamed.sample(1, 20, seed=4).tolist() != sample.tolist()
    assert families.sample(1, 60, seed=4).tolist() == families.entries(1).tolist()


def test_invalid_values_are_rejected() -> None:
    assert len(group_by_value(np.empty(0, np.int32))) == 0
    with pytest.raises(UsageError, match="-5"):
        group_by_value(np.array([1, -5], np.int32))
    with pytest.raises(UsageError, match="2-d"):
        group_by_value(np.zeros((2, 2), np.int32))
    with pytest.raises(UsageError, match="float"):
        group_by_value(np.zeros(2))
