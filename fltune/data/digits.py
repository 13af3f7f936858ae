"""Handwritten digits that need no download: the data set of first steps and of tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fltune.data.dataset import Dataset, RawData
from fltune.data.federated import Split
from fltune.data.validation import hold_out


@dataclass(frozen=True)
class Digits(Dataset):
    """1,797 real 8x8 handwritten digits inside scikit-learn: no download.

    Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits" (1998). ``x`` is float32
    ``[n, 64]``: grey values in 0..16, divided by 16. 1,437 training and 360 test samples,
    stratified, the same ones whatever the seed of an experiment.
    """

    TEST_SIZE: ClassVar[int] = 360

    def load(self) -> RawData:
        """Return the digits."""
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        x = (torch.from_numpy(images) / 16).float()
        y = torch.from_numpy(labels).long()
        kept, held_out = hold_out(y, self.TEST_SIZE, np.random.default_rng(0))
        return RawData(Split(x[kept], y[kept]), Split(x[held_out], y[held_out]), num_classes=10)
