"""The papers' networks: their size to the parameter, their shapes, and a round of each."""

import pytest
import torch
from quadratics import trainer
from torch import nn

from fltune.algorithms.fedavg import FedAvg
from fltune.data.federated import FederatedData, Split
from fltune.federation import FederatedDataModule, FederatedModule, LocalSGD
from fltune.federation.losses import cross_entropy
from fltune.models import MODELS
from fltune.participation.full import Full
from fltune.server.fedgm import FedSGD

GREY, COLOUR = (1, 28, 28), (3, 32, 32)

COUNTS = [
    ("mlp", GREY, 10, {"hidden": [64, 30], "dropout": 0.2}, 52_500),
    ("mlp", GREY, 62, {"hidden": [64, 30]}, 54_112),
    ("mlp", GREY, 10, {"hidden": [200, 200]}, 199_210),
    ("mlp", GREY, 62, {"hidden": [200, 200]}, 209_662),
    ("mlp", (60,), 10, {"hidden": [32]}, 2_282),
    ("mlp", GREY, 10, {"hidden": [128]}, 101_770),
    ("mlp_fedtorch", GREY, 10, {}, 200_000),
    ("mlp_fedtorch", GREY, 62, {}, 210_400),
    ("cnn_mnist", GREY, 10, {}, 51_480),
    ("cnn_svhn", COLOUR, 10, {}, 273_706),
    ("cnn_cifar", COLOUR, 10, {}, 551_786),
    ("resnet20", COLOUR, 10, {}, 269_722),
    ("resnet20", COLOUR, 100, {}, 275_572),
    ("resnet20", COLOUR, 10, {"shortcut": "projection"}, 272_474),
    ("resnet20", COLOUR, 100, {"shortcut": "projection"}, 278_324),
    ("resnet18", COLOUR, 10, {}, 11_173_962),
    ("resnet18", COLOUR, 100, {"norm": "batch"}, 11_220_132),
    ("vgg11", COLOUR, 10, {}, 9_231_114),
    ("vgg11", COLOUR, 10, {"norm": "batch"}, 9_231_114),
    ("vgg11", COLOUR, 10, {"norm": "none"}, 9_225_610),
    ("vgg16", COLOUR, 10, {"norm": "none"}, 14_719_818),
]


def make(name, shape=COLOUR, classes=10, **options):
    torch.manual_seed(0)
    return MODELS.load(name)(shape, classes, **options)


@pytest.mark.parametrize(("name", "shape", "classes", "options", "count"), COUNTS, ids=str)
def test_parameters_and_output(name, shape, classes, options, count):
    with torch.device("meta"):  # shapes without numbers
        network = make(name, shape, classes, **options)
        output = network(torch.empty(2, *shape))
    assert sum(p.numel() for p in network.parameters()) == count
    assert output.shape == (2, classes)


def groups(network):
    found = [m for m in network.modules() if isinstance(m, nn.GroupNorm)]
    return {(m.num_channels, m.num_groups) for m in found}, len(found)


def test_groups_of_group_norm():
    assert groups(make("resnet20")) == ({(16, 4), (32, 8), (64, 8)}, 19)
    assert groups(make("resnet20", shortcut="projection"))[1] == 21
    wide = {(64, 32), (128, 32), (256, 32), (512, 32)}
    assert groups(make("resnet18")) == (wide, 20)
    assert groups(make("vgg11")) == (wide, 8)
    assert groups(make("vgg11", norm="none")) == (set(), 0)
    halves = {(c, 2) for c, _ in wide}
    assert groups(make("resnet18", groups=2))[0] == halves


def kinds(network):
    return [type(m).__name__ for m in network.layers]


def test_layers_of_the_cnns_in_the_papers_order():
    pooled = ["Conv2d", "ReLU", "MaxPool2d"]
    dropped = ["Conv2d", "Dropout", "ReLU", "MaxPool2d"]
    dense = ["Flatten", "Linear", "ReLU"]
    assert kinds(make("cnn_mnist", GREY)) == [*pooled, *dropped, *dense, "Dropout", "Linear"]
    assert kinds(make("cnn_svhn")) == [*pooled, *pooled, *dense, "Linear"]
    assert kinds(make("cnn_cifar")) == [*pooled, *pooled, *dense, "Linear", "ReLU", "Linear"]
    assert [m.p for m in make("cnn_mnist", GREY).modules() if type(m) is nn.Dropout] == [0.2] * 2


def test_layers_of_the_mlp_as_in_fedtorch():
    network = make("mlp_fedtorch", (4,), 3, hidden=[5])
    assert kinds(network) == ["Flatten", "Linear", "BatchNorm1d", "ReLU", "Dropout", "Linear"]
    assert network.layers[2].running_mean is None
    assert network.layers[4].p == 0.25
    assert network.layers[-1].bias is None


def test_a_padded_shortcut_keeps_every_other_pixel_and_adds_empty_channels():
    block = make("resnet20").layers[6]  # the first one of the second stage
    x = torch.randn(2, 16, 6, 6)
    through = block.shortcut(x)
    assert through.shape == (2, 32, 3, 3)
    assert torch.equal(through[:, :16], x[:, :, ::2, ::2])
    assert not through[:, 16:].any()


def test_depth_is_what_the_name_says():
    def depth(network):  # projections do not count
        layers = (m for m in network.modules() if isinstance(m, (nn.Conv2d, nn.Linear)))
        return sum(getattr(m, "kernel_size", None) != (1, 1) for m in layers)

    with torch.device("meta"):
        named = {"resnet20": 20, "resnet18": 18, "vgg11": 9, "vgg16": 14}  # one dense layer, not 3
        for name, layers in named.items():
            assert depth(make(name)) == layers


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("cnn_mnist", (60,), {}, r"shape \[60\]; CNNMnist is for images of shape \[1, 28, 28\]"),
        ("cnn_mnist", COLOUR, {}, r"found samples of shape \[3, 32, 32\]"),
        ("cnn_mnist", GREY, {"dropout": 1.0}, r"dropout = 1\.0: must be in \[0, 1\)"),
        ("cnn_svhn", GREY, {}, r"CNNSvhn is for images of shape \[3, 32, 32\]"),
        ("cnn_cifar", (3, 64, 64), {}, r"CNNCifar is for images of shape \[3, 32, 32\]"),
        ("mlp_fedtorch", (4,), {"hidden": [0]}, r"hidden = \[0\]: every size must be >= 1"),
        ("mlp_fedtorch", (4,), {"dropout": -0.5}, r"dropout = -0\.5"),
        ("resnet20", (60,), {}, r"shape \[60\]; must be images \[channels, height, width\]"),
        ("resnet20", COLOUR, {"shortcut": "none"}, "'none': must be one of padding, projection"),
        ("resnet18", COLOUR, {"norm": "layer"}, "'layer': must be one of group, batch, none"),
        ("resnet18", COLOUR, {"groups": 3}, "groups = 3: must divide the 64 channels"),
        ("resnet18", COLOUR, {"groups": 0}, "groups = 0: must divide"),
        ("vgg11", GREY, {}, r"\[1, 28, 28\]; must be images .* of at least 32 x 32"),
    ],
    ids=str,
)
def test_networks_refuse(name, shape, options, message):
    with pytest.raises(ValueError, match=message):
        make(name, shape, **options)


def one_round(network, shape, strategy, sizes=(3, 2), steps=2):
    """FedAvg among a few clients of a few random samples."""
    n, random = sum(sizes), torch.Generator().manual_seed(1)
    x = torch.randn(n, *shape, generator=random, dtype=torch.float64)
    train = Split(x, torch.arange(n) % 10)
    clients = list(torch.arange(n).split(list(sizes)))
    data = FederatedData.from_clients(train, train, train, clients, 10)
    sgd = LocalSGD(lr=0.05, steps=steps, batch_size=2)
    many = len(sizes)
    module = FederatedModule(
        network.double(), cross_entropy, FedAvg(), sgd, many, 1, 10, strategy=strategy
    )
    source = FederatedDataModule(data, Full().bind(many, 0), sgd, 0, torch.float64)
    before = module.x
    trainer(1, FedSGD()).fit(module, source)
    assert not torch.equal(module.x, before)
    return module.x


SMALL = [
    ("mlp", GREY, {"dropout": 0.2}),
    ("cnn_mnist", GREY, {}),
    ("cnn_svhn", COLOUR, {}),
    ("cnn_cifar", COLOUR, {}),
    ("resnet20", (3, 8, 8), {}),
    ("resnet20", (3, 8, 8), {"shortcut": "projection"}),
    ("resnet18", (3, 8, 8), {"norm": "none"}),
]


@pytest.mark.parametrize(("name", "shape", "options"), SMALL, ids=str)
def test_a_round_has_the_same_numbers_in_a_loop_and_stacked(name, shape, options):
    steps = 1 if name == "resnet18" else 2
    loop, stacked = (
        one_round(make(name, shape, **options), shape, strategy, steps=steps)
        for strategy in ("loop", "stacked")
    )
    torch.testing.assert_close(stacked, loop, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["resnet18", "vgg11", "vgg16"])
def test_every_layer_of_a_large_network_is_trained(name):
    network = make(name)
    loss = cross_entropy(network(torch.randn(2, *COLOUR)), torch.tensor([0, 1])).mean()
    loss.backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in network.parameters())


def test_the_mlp_as_in_fedtorch_makes_a_round_with_a_client_of_one_sample():
    x = one_round(make("mlp_fedtorch", (6,), hidden=[5, 4]), (6,), "auto", sizes=(3, 1))
    assert x.isfinite().all()
    with pytest.raises(ValueError, match=r"layer 'layers\.2' \(BatchNorm\) would count the padd"):
        one_round(make("mlp_fedtorch", (6,)), (6,), "stacked")
