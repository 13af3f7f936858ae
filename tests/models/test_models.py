import pytest
import torch
from torch import nn

from fltune.federation.flat import FlatNetwork
from fltune.models.dropout import KeyedDropout, key_dropout
from fltune.models.linear import Linear
from fltune.models.mlp import MLP


def test_mlp_of_the_papers():
    network = MLP((1, 28, 28), 10)
    assert network(torch.zeros(5, 1, 28, 28)).shape == (5, 10)
    widths = [(m.in_features, m.out_features) for m in network.modules() if type(m) is nn.Linear]
    assert widths == [(784, 64), (64, 30), (30, 10)]
    assert FlatNetwork(network).dimension == 784 * 64 + 64 + 64 * 30 + 30 + 30 * 10 + 10 == 52_500


def test_no_hidden_layer_is_softmax_regression():
    network = MLP((4,), 3, hidden=[])
    x = torch.randn(2, 4)
    layer = network.layers[-1]
    torch.testing.assert_close(network(x), x @ layer.weight.T + layer.bias)


def test_dropout_follows_the_first_hidden_layer_only():
    kinds = [type(m).__name__ for m in MLP((4,), 3, hidden=[8, 8], dropout=0.5).layers]
    assert kinds == ["Flatten", "Linear", "ReLU", "Dropout", "Linear", "ReLU", "Linear"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": [3, 0]}, r"hidden = \[3, 0\]: every size must be >= 1"),
        ({"dropout": 1.0}, r"dropout = 1\.0: must be in \[0, 1\)"),
        ({"dropout": -0.1}, r"dropout = -0\.1"),
    ],
)
def test_mlp_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        MLP((4,), 3, **options)


def test_linear_is_any_quadratic():
    network = Linear((2, 3))
    network.w.data = torch.tensor([1.0, 2.0, 3.0])
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(network(x), torch.einsum("bkd,d->bk", x, network.w))
    assert Linear((3,)).w.tolist() == [0, 0, 0]
    torch.testing.assert_close(network(x[:, 0]), network(x)[:, :1])


def masks(key, network, shape=(6, 50)):
    flat = FlatNetwork(network)
    return flat.call(flat.split(flat.read()), torch.ones(shape), torch.tensor(key))


def network_of(p=0.3):
    first, second = nn.Linear(50, 50), nn.Linear(50, 50)
    for layer in (first, second):
        nn.init.eye_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.Dropout(p)), nn.Sequential(second, nn.Dropout(p))


def test_dropout_is_a_function_of_its_key():
    network = nn.Sequential(*network_of()[0])
    first = masks(5, network)
    torch.manual_seed(9)
    assert torch.equal(masks(5, network), first)
    assert not torch.equal(masks(6, network), first)
    kept = first > 0
    assert float(kept.float().mean()) == pytest.approx(0.7, abs=0.1)
    torch.testing.assert_close(first[kept], torch.full_like(first[kept], 1 / 0.7))
    assert torch.equal(masks(5, network, (2, 50)), first[:2])  # rows after a row do not matter


def test_two_dropout_layers_have_masks_of_their_own():
    one, two = network_of()
    both = masks(5, nn.Sequential(one, two))
    alone = masks(5, nn.Sequential(one))
    shared = float(((both > 0) == (alone > 0)).float().mean())
    assert shared < 0.9  # the second mask drops 3 in 10 of what the first one kept


def test_dropout_rests_in_evaluation():
    network = nn.Sequential(*network_of()[0])
    names = key_dropout(network)
    assert names == ["1.key"]
    assert type(network[1]) is KeyedDropout
    network.eval()
    assert torch.equal(network(torch.ones(2, 50)), torch.ones(2, 50))
    assert "1.key" not in network.state_dict()


def test_flat_vector_round_trip():
    network = MLP((4,), 3, hidden=[5])
    flat = FlatNetwork(network)
    x = flat.read()
    assert len(x) == flat.dimension == sum(p.numel() for p in network.parameters())
    inputs = torch.randn(2, 4)
    expected = network(inputs)
    flat.write(torch.zeros_like(x))
    assert not network(inputs).any()
    torch.testing.assert_close(flat.call(flat.split(x), inputs, torch.tensor(0)), expected)
    flat.write(x)
    assert torch.equal(flat.read(), x)
    torch.testing.assert_close(network(inputs), expected)
