"""SST-2: sentences of film reviews, positive or negative, as token ids."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from fltune.data.dataset import Dataset, RawData
from fltune.data.federated import Split
from fltune.errors import DataError
from fltune.extras import require
from fltune.parameters import parameter

WORDS = "words"
"""The tokenizer that needs no download."""


@dataclass(frozen=True)
class SST2(Dataset):
    """The Stanford Sentiment Treebank as a task of two classes, in GLUE's files.

    Socher et al. (2013); Wang et al. (2019). 67,349 training sentences. The labels of the test file
    are hidden, so the 872 sentences of the dev file are the test samples. ``x`` is int64
    ``[n, L]``: token ids, filled up with 0 to the longest sentence of both files.
    """

    FILES: ClassVar[tuple[str, str]] = ("train.tsv", "dev.tsv")

    root: str = parameter("data", "folder that holds SST-2/train.tsv and SST-2/dev.tsv")
    tokenizer: str = parameter(
        "bert-base-uncased",
        "a published tokenizer, fetched once, or its folder (needs the extra text); or words: "
        "hashed words, which needs nothing",
    )
    max_length: int = parameter(128, "tokens of a sentence that are kept", ge=2)
    vocab_size: int = parameter(8192, "different ids that tokenizer words gives", ge=3)
    limit: int | None = parameter(None, "only the first so many training sentences", ge=1)
    test_limit: int | None = parameter(None, "only the first so many test sentences", ge=1)

    @property
    def folder(self) -> Path:
        """Where the files are expected."""
        return Path(self.root).expanduser() / "SST-2"

    def load(self) -> RawData:
        """Return the sentences; see :meth:`Dataset.load`."""
        missing = [name for name in self.FILES if not (self.folder / name).is_file()]
        if missing:
            raise DataError(
                f"SST2: {' and '.join(missing)} not found in {self.folder}. They are in SST-2.zip, "
                "task SST-2 of the GLUE benchmark (gluebenchmark.com/tasks); unpack it there, or "
                "set data.root to the folder that holds SST-2"
            )
        train, train_labels = self._read(self.FILES[0], self.limit)
        test, test_labels = self._read(self.FILES[1], self.test_limit)
        ids = self._token_ids(train + test)
        x = torch.zeros(len(ids), max(map(len, ids)), dtype=torch.int64)
        for row, tokens in zip(x, ids, strict=True):
            row[: len(tokens)] = torch.tensor(tokens)
        n = len(train)
        return RawData(Split(x[:n], train_labels), Split(x[n:], test_labels), num_classes=2)

    def _read(self, name: str, limit: int | None) -> tuple[list[str], Tensor]:
        path = self.folder / name
        try:
            header, *lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: unreadable ({error}); unpack SST-2.zip again") from error
        if header.split("\t") != ["sentence", "label"]:
            raise DataError(
                f"{path}: begins with {header[:60]!r}; must begin with 'sentence<tab>label'"
            )
        if len(lines) < (limit or 1):
            raise DataError(f"{path}: holds {len(lines)} sentences, {limit or 1} are asked for")
        sentences, labels = [], []
        for number, line in enumerate(lines[:limit], start=2):
            sentence, _, label = line.rpartition("\t")
            if label not in ("0", "1"):
                raise DataError(
                    f"{path}, line {number}: found {line[:60]!r}; must be a sentence, a tab, and "
                    "0 or 1"
                )
            sentences.append(sentence)
            labels.append(int(label))
        return sentences, torch.tensor(labels)

    def _token_ids(self, sentences: list[str]) -> list[list[int]]:
        if self.tokenizer == WORDS:
            return [self._hashed(sentence) for sentence in sentences]
        transformers = require("transformers", "text", f"data.tokenizer {self.tokenizer!r}")
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.tokenizer)
        except (OSError, ValueError) as error:
            raise DataError(
                f"SST2: the tokenizer {self.tokenizer!r} cannot be loaded ({error}); name a "
                "published one or a folder that holds one, or set data.tokenizer to words"
            ) from error
        if tokenizer.pad_token_id != 0:
            raise DataError(
                f"SST2: the tokenizer {self.tokenizer!r} pads with {tokenizer.pad_token_id}; must "
                "pad with 0, as BERT's does"
            )
        return tokenizer(sentences, truncation=True, max_length=self.max_length)["input_ids"]

    def _hashed(self, sentence: str) -> list[int]:
        """Return 1, where BERT has its first token, and a number from 2 for each word."""
        words = sentence.lower().split()[: self.max_length - 1]
        return [1, *(2 + zlib.crc32(word.encode()) % (self.vocab_size - 2) for word in words)]
