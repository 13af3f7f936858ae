import json
import sys
import zlib

import pytest
import torch

from fltune.data import DATASETS
from fltune.data.sst2 import SST2
from fltune.errors import ConfigError, DataError

TRAIN = [("a gorgeous , witty film ", 1), ("dull", 0), ("Gorgeous ", 1), ('the "plot" of it', 0)]
DEV = [("witty and dull and long", 0), ("a film", 1)]
HEADER = "sentence\tlabel\n"


def lines(rows):
    return HEADER + "".join(f"{sentence}\t{label}\n" for sentence, label in rows)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "SST-2"
    folder.mkdir()
    (folder / "train.tsv").write_text(lines(TRAIN), encoding="utf-8")
    (folder / "dev.tsv").write_text(lines(DEV), encoding="utf-8")
    return tmp_path


def sst2(root, **options):
    return SST2(root=str(root), **{"tokenizer": "words", **options})


def test_sentences_become_rows_of_token_ids(root):
    raw = sst2(root).load()
    assert raw.num_classes == 2
    assert raw.train.x.dtype == torch.int64
    assert raw.train.y.tolist() == [1, 0, 1, 0]
    assert raw.test.y.tolist() == [0, 1]
    assert raw.train.x.shape == (4, 6)  # the longest of both files: five words and the first token
    assert raw.test.x.shape == (2, 6)
    assert raw.train.x[:, 0].tolist() == [1] * 4
    assert (raw.train.x != 0).sum(1).tolist() == [6, 2, 2, 5]
    gorgeous = 2 + zlib.crc32(b"gorgeous") % 8190
    assert raw.train.x[2].tolist() == [1, gorgeous, 0, 0, 0, 0]
    assert raw.train.x[0, 2] == gorgeous  # the same word, whatever its case


def test_long_sentences_are_cut_and_ids_stay_below_the_vocabulary(root):
    raw = sst2(root, max_length=3, vocab_size=4).load()
    assert raw.train.x.shape == (4, 3)
    assert set(raw.train.x.flatten().tolist()) <= {0, 1, 2, 3}


def test_limits(root):
    raw = sst2(root, limit=2, test_limit=1).load()
    assert (len(raw.train), len(raw.test)) == (2, 1)
    with pytest.raises(DataError, match=r"train\.tsv: holds 4 sentences, 5 are asked for"):
        sst2(root, limit=5).load()


def test_missing_files_name_folder_and_source(tmp_path):
    with pytest.raises(DataError) as caught:
        sst2(tmp_path).load()
    text = str(caught.value)
    assert f"train.tsv and dev.tsv not found in {tmp_path / 'SST-2'}" in text
    assert "GLUE benchmark (gluebenchmark.com/tasks)" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"begins with ''; must begin with 'sentence<tab>label'"),
        ("index\tsentence\n0\tgood\n", "begins with 'index"),
        (HEADER, "holds 0 sentences, 1 are asked for"),
        (
            HEADER + "good\t1\nno label\n",
            r"train\.tsv, line 3: found 'no label'; must be a sentence",
        ),
        (HEADER + "good\t2\n", r"line 2: found 'good\\t2'"),
    ],
)
def test_corrupt_files(root, text, message):
    (root / "SST-2" / "train.tsv").write_text(text)
    with pytest.raises(DataError, match=message):
        sst2(root).load()


def test_bytes_that_are_no_text(root):
    (root / "SST-2" / "dev.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"dev\.tsv: unreadable"):
        sst2(root).load()


def test_without_the_extra_a_published_tokenizer_says_what_to_install(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"pip install 'fltune\[text\]'"):
        sst2(root, tokenizer="bert-base-uncased").load()
    assert len(sst2(root).load().train) == 4


def vocabulary(folder, pad_first=True):
    """A tokenizer of BERT's kind in a folder of its own."""
    pytest.importorskip("transformers")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, "a", "witty", "film", "dull", "gorgeous", "##s", ","]
    if not pad_first:
        words[0], words[1] = words[1], words[0]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    kind = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    return {word: i for i, word in enumerate(words)}


def test_a_tokenizer_from_a_folder(root):
    ids = vocabulary(root / "tokenizer")
    raw = sst2(root, tokenizer=str(root / "tokenizer"), max_length=5).load()
    assert raw.train.x.shape == (4, 5)
    dull = [ids[w] for w in ("[CLS]", "dull", "[SEP]", "[PAD]", "[PAD]")]
    assert raw.train.x[1].tolist() == dull
    cut = [ids[w] for w in ("[CLS]", "a", "gorgeous", ",", "[SEP]")]
    assert raw.train.x[0].tolist() == cut


def test_a_tokenizer_that_pads_with_another_token_is_refused(root):
    vocabulary(root / "tokenizer", pad_first=False)
    with pytest.raises(DataError, match="pads with 1; must pad with 0"):
        sst2(root, tokenizer=str(root / "tokenizer")).load()


def test_a_tokenizer_that_is_not_there(root):
    pytest.importorskip("transformers")
    with pytest.raises(DataError, match=r"cannot be loaded .* set data\.tokenizer to words"):
        sst2(root, tokenizer=str(root / "nowhere")).load()


def test_it_has_a_name():
    assert DATASETS.load("sst2") is SST2
