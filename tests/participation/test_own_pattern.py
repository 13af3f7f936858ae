"""What a pattern of one's own may draw, and what is refused with its class and the round."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from fltune.errors import RunFailedError
from fltune.participation.base import Participation
from fltune.participation.trace import record


@dataclass(eq=False)
class Own(Participation):
    """Draws what a test gives it, from round 2 on; client 0 before."""

    given: Any = field(default=None)

    def draw(self, round, random):
        return self.given if round >= 2 else torch.tensor([0])


@pytest.mark.parametrize(
    "ids",
    [
        [2, 1],
        (2, 1),
        np.array([2, 1]),
        np.array([2, 1], np.uint16),
        [np.int64(2), np.int64(1)],
        torch.tensor([2, 1], dtype=torch.int32),
        torch.tensor([2, 1], dtype=torch.uint8),
    ],
    ids=lambda ids: type(ids).__name__,
)
def test_whole_numbers_in_any_form(ids):
    pattern = Own(ids).bind(3, 0)
    assert record(pattern, 3) == [[0], [0], [1, 2]]
    assert pattern.turns.counts.tolist() == [2, 1, 1]


@pytest.mark.parametrize("nobody", [[], np.array([]), torch.tensor([], dtype=torch.int64)])
def test_an_empty_round_in_any_form(nobody):
    assert record(Own(nobody).bind(3, 0), 3)[2] == []


@pytest.mark.parametrize(
    ("drawn", "found"),
    [
        (torch.tensor([True, False, True]), r"is a mask; take mask.nonzero\(\).flatten\(\)"),
        ([True, False, True], "is a mask; take"),
        (torch.tensor([0.0, 1.0]), r"has shape \(2,\) and type torch.float32"),
        (torch.tensor([0.0]).to(torch.complex64), r"has shape \(1,\) and type torch.complex64"),
        (torch.tensor([[0, 1]]), r"has shape \(1, 2\) and type torch.int64"),
        (torch.tensor(1), r"has shape \(\) and type torch.int64"),
        (torch.tensor([2, 3]), "names client 3"),
        ([-1, 2], "names client -1"),
        (torch.tensor([1, 999], dtype=torch.int32), "names client 999"),
        (None, "is a NoneType"),
        ({0, 1}, "is a set"),
        (["ann"], "is a list"),
    ],
    ids=str,
)
@pytest.mark.parametrize("ahead", [False, True])
def test_what_is_refused(drawn, found, ahead):
    pattern = Own(drawn).bind(3, 0)
    text = (
        rf"^participation: what Own drew in round 2 {found}.*; must be ids of clients, .* 0\.\.2$"
    )
    with pytest.raises(RunFailedError, match=text):
        pattern.upcoming(3) if ahead else record(pattern, 3)
