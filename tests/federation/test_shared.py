import itertools
import os

import pytest
import torch

from fltune.federation.parallel import possible
from fltune.federation.shared import SharedMemory, lay_out

pytestmark = pytest.mark.skipif(not possible(), reason="needs memfd_create")

VALUES = {
    "a": torch.arange(5),
    "none": torch.empty(0, 3),
    "scalar": torch.tensor(2.5, dtype=torch.float64),
    "b": torch.randn(7, 3),
}


def test_a_second_mapping_sees_what_the_first_wrote():
    layout, size = lay_out(VALUES)
    first = SharedMemory()
    first.reserve(size)
    second = SharedMemory(os.dup(first.file))
    ours, theirs = first.tensors(layout), second.tensors(layout)
    for name, value in VALUES.items():
        ours[name].copy_(value)
    for name, value in VALUES.items():
        assert torch.equal(theirs[name], value)
        assert theirs[name].dtype == value.dtype
    theirs["b"].fill_(4.0)
    assert (ours["b"] == 4.0).all()
    first.close()
    second.close()
    assert (theirs["b"] == 4.0).all()  # a view outlives the descriptors


def test_memory_grows_and_keeps_what_it_holds():
    memory = SharedMemory()
    layout, size = lay_out({"a": torch.zeros(10)})
    memory.reserve(size)
    before = memory.tensors(layout)["a"].fill_(3.0)
    wide, more = lay_out({"a": torch.zeros(10), "b": torch.zeros(100_000)})
    memory.reserve(more)
    after = memory.tensors(wide)
    assert torch.equal(after["a"], before)
    after["a"][0] = 1.0
    assert before[0] == 1.0
    memory.close()


def test_tensors_do_not_overlap_and_lie_as_torch_lays_its_own():
    layout, size = lay_out(VALUES)
    places = sorted((offset, offset + VALUES[name].nbytes) for name, (offset, *_) in layout.items())
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(places))
    assert all(offset % 64 == 0 for offset, _ in places)
    assert places[-1][1] <= size
