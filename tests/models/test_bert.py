import sys

import pytest
import torch

from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation.flat import FlatNetwork
from fltune.models import MODELS
from fltune.models.bert import Bert
from fltune.runner import build, run
from fltune.search.config import SearchConfig
from fltune.search.preparation import check_data

transformers = pytest.importorskip("transformers")
WORDS = 50


def tiny(length=6, classes=2):
    torch.manual_seed(0)
    return Bert((length,), classes, pretrained=None, config="tiny", vocab_size=WORDS)


def sentences():
    x = torch.randint(1, WORDS, (3, 6), generator=torch.Generator().manual_seed(0))
    x[1, 4:] = 0
    return x


@pytest.mark.parametrize(
    ("size", "vocabulary", "count"), [("base", 30522, 109_483_778), ("tiny", 30522, 4_386_178)]
)
def test_parameters(size, vocabulary, count):
    with torch.device("meta"):
        network = Bert((128,), 2, pretrained=None, config=size, vocab_size=vocabulary)
    assert sum(p.numel() for p in network.parameters()) == count
    assert (network.head.in_features, network.head.out_features) == (
        {"base": 768}.get(size, 128),
        2,
    )


def test_padding_is_not_seen():
    network, x = tiny().double().eval(), sentences()
    assert network(x).shape == (3, 2)
    torch.testing.assert_close(network(x[1:2]), network(x[1:2, :4]), rtol=1e-12, atol=1e-14)
    assert not torch.allclose(network(x[:1]), network(x[:1, :4]))


def test_every_parameter_is_trained():
    network = tiny()
    network(sentences()).square().sum().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_its_dropout_modules_are_keyed():
    network = tiny()
    names = FlatNetwork(network).key_names
    assert len(names) == 1 + 3 * 2 + 1  # embeddings, three a layer, the head's
    assert not any(type(m) is torch.nn.Dropout for m in network.modules())


def test_weights_from_a_folder(tmp_path):
    first = tiny()
    first.encoder.save_pretrained(tmp_path / "weights")
    again = Bert((6,), 2, pretrained=str(tmp_path / "weights"))
    for name, value in first.encoder.state_dict().items():
        assert torch.equal(again.encoder.state_dict()[name], value)
    assert again.encoder.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((3, 32, 32), {}, r"shape \[3, 32, 32\]; must be sentences of token ids \[L\]"),
        ((600,), {}, "at most 512 long"),
        ((6,), {"config": "huge"}, "'huge': must be one of tiny, small, base"),
        ((6,), {"vocab_size": 0}, "vocab_size = 0: must be >= 1"),
        ((6,), {"pretrained": "./no/such/folder"}, "cannot be loaded .* set it to null for random"),
    ],
)
def test_it_refuses(shape, options, message):
    with pytest.raises(ValueError, match=message):
        Bert(shape, 2, **{"pretrained": None, "config": "tiny", **options})


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert MODELS.load("bert") is Bert
    with pytest.raises(ConfigError, match=r"model bert needs .*; pip install 'fltune\[text\]'"):
        tiny()


def experiment(root, **changes):
    folder = root / "SST-2"
    folder.mkdir(exist_ok=True)
    words = ["good", "fine", "bad", "poor"]
    rows = [f"a {words[i % 4]} film {'indeed ' * (i % 3)}\t{int(i % 4 < 2)}" for i in range(24)]
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    data = {"name": "sst2", "root": str(root), "tokenizer": "words", "vocab_size": WORDS}
    bert = {"name": "bert", "pretrained": None, "config": "tiny", "vocab_size": WORDS}
    raw = {
        "data": {**data, "clients": 4, "val_fraction": 0.2},
        "model": bert,
        "participation": {"kind": "uniform", "per_round": 2},
        "client": {"lr": 0.05, "steps": 2, "batch_size": 4},
        "rounds": 2,
        "device": "cpu",
    }
    return Experiment.parse({**raw, **changes})


def test_rounds_on_sentences_are_repeatable(tmp_path):
    """The dropout of attention, which is no module, included."""
    first = run(experiment(tmp_path))
    assert first.strategy == "loop"
    assert first.rounds == 2
    assert {"val/accuracy", "test/accuracy"} <= set(first.metrics)
    torch.rand(3)  # nobody's business
    assert run(experiment(tmp_path)).history == first.history


def test_a_search_finds_a_folder_of_weights_from_its_workers_folders_too(tmp_path, monkeypatch):
    tiny().encoder.save_pretrained(tmp_path / "weights")
    monkeypatch.chdir(tmp_path)
    raw = experiment(tmp_path, model={"name": "bert", "pretrained": "weights"}).as_dict()
    space = {"server.lr": {"grid": [1.0]}}
    config = SearchConfig.parse({"experiment": raw, "methods": {"FedAvg": {"space": space}}})
    check_data(config)
    model = config.method("FedAvg").experiment({}).model
    assert model.pretrained == str(tmp_path / "weights")


def test_a_client_does_not_feel_its_cohort(tmp_path):
    built = build(experiment(tmp_path))
    module, source = built.module, built.datamodule

    def ends(cohort):
        drawn = source.cohort(0, cohort)
        problem = module.algorithm.local_problem(module.x, {}, {}, None)
        return module.solver.solve(problem, drawn.data, drawn.plan, 0.1, drawn.keys).end

    assert torch.equal(ends([0, 2, 3])[1:], ends([2, 3]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "stacked"}, "strategy = 'stacked' is not for Bert, .* use strategy auto"),
        ({"data": {"name": "digits", "clients": 4}}, "model: bert cannot take .* must be int64"),
        (
            {"model": {"name": "bert", "pretrained": None, "config": "tiny", "vocab_size": 9}},
            "model: bert cannot take samples of shape .* index out of range",
        ),
    ],
)
def test_what_does_not_fit_is_a_config_error(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        build(experiment(tmp_path, **changes))
