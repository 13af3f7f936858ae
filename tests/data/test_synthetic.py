import numpy as np
import pytest
import torch

from fltune.data import DATASETS
from fltune.data.dataset import federate
from fltune.data.dirichlet_class import DirichletClass
from fltune.data.natural import Natural
from fltune.data.synthetic import FORMS, Synthetic


def sizes_of(raw):
    """Return the number of training samples of each client."""
    return raw.groups.bincount()


def test_shapes_and_registration():
    assert DATASETS.load("synthetic") is Synthetic
    raw = Synthetic(num_clients=12).load()
    assert (raw.train.x.dtype, raw.train.y.dtype) == (torch.float32, torch.int64)
    assert raw.train.x.shape[1:] == raw.test.x.shape[1:] == (60,)
    assert raw.num_classes == 10
    assert raw.groups.unique().tolist() == list(range(12))


def client(k, base=0.0, common=None, **settings):
    """Return inputs and labels of one client, all of them."""
    shared = np.broadcast_to(base, (10, 61))
    return Synthetic(**settings)._client(k, shared, common)


def test_a_tenth_of_every_client_rounded_up_is_the_test_set():
    raw = Synthetic(num_clients=200).load()
    sizes = torch.tensor([len(client(k)[1]) for k in range(200)])
    assert torch.equal(sizes_of(raw), 9 * sizes // 10)
    assert len(raw.test) == (sizes - 9 * sizes // 10).sum()
    x, _ = client(0)
    assert np.array_equal(raw.train.x[raw.groups == 0], x[: 9 * len(x) // 10])
    assert np.array_equal(raw.test.x[: len(x) - 9 * len(x) // 10], x[9 * len(x) // 10 :])


def test_sizes_of_the_fedcdr_form():
    sizes = np.array([len(client(k)[1]) for k in range(4000)])
    assert (sizes.min(), sizes.max()) == (10, 50)
    # The exact mean 24.4, median 17 and share 0.199 at the clip; four standard errors.
    assert abs(sizes.mean() - 24.4) < 4 * sizes.std() / 4000**0.5
    assert abs(np.median(sizes) - 17) <= 1
    assert abs((sizes == 50).mean() - 0.199) < 4 * 0.4 / 4000**0.5


def test_sizes_of_the_fedprox_form():
    sizes = sizes_of(Synthetic(form="fedprox", num_clients=300).load())
    assert sizes.min() >= 45  # nine tenths of 50
    assert sizes.max() > 1000  # not clipped


def test_inputs_have_the_papers_variances():
    raw = Synthetic(form="fedprox", num_clients=300).load()
    x, groups, sizes = raw.train.x.double(), raw.groups, sizes_of(raw)
    means = torch.zeros(300, 60, dtype=torch.float64).index_add_(0, groups, x) / sizes[:, None]
    within = (x - means[groups]).square().sum(0) / (len(x) - 300)
    expected = torch.arange(1, 61, dtype=torch.float64) ** -1.2
    error = (2 / (len(x) - 300)) ** 0.5
    # sixty coordinates, five standard errors: one false alarm in 30,000 seeds
    assert ((within / expected - 1).abs() < 5 * error).all()


@pytest.mark.parametrize("beta", [0.0, 3.0])
def test_beta_is_the_standard_deviation_of_the_clients_centres(beta):
    raw = Synthetic(beta=beta, form="fedprox", num_clients=300).load()
    x, sizes = raw.train.x.double(), sizes_of(raw)
    means = torch.zeros(300, 60, dtype=torch.float64).index_add_(0, raw.groups, x) / sizes[:, None]
    centres = means.mean(1)  # B_k plus the mean of sixty Normal(0, 1)
    expected = (beta**2 + 1 / 60) ** 0.5
    assert abs(float(centres.std()) / expected - 1) < 5 / (2 * 300) ** 0.5
    assert abs(float((means - centres[:, None]).std()) - 1) < 0.05  # v_k around B_k


def test_alpha_moves_all_classes_alike_and_so_changes_nothing():
    plain, spread = (Synthetic(alpha=alpha, num_clients=50).load() for alpha in (0.0, 5.0))
    assert torch.equal(plain.train.x, spread.train.x)
    assert torch.equal(plain.train.y, spread.train.y)


def distance(**settings):
    """Return the mean distance between a client's labels and all labels: 0 is homogeneous."""
    dataset = Synthetic(form="fedprox", num_clients=100, **settings)
    return federate(dataset, Natural(), 100, 0.1, 0).report()["label_distance_mean"]


def test_synthetic_0_0_is_not_homogeneous_and_iid_is():
    assert distance(alpha=0.0, beta=0.0) > 0.4
    assert distance(alpha=0.0, beta=0.0, iid=True) < 0.15  # the noise of 45 samples and more
    assert distance(alpha=5.0, beta=5.0) > distance(alpha=0.0, beta=0.0)


def labelled(model, x):
    return (x.astype(np.float64) @ model[:, :-1].T + model[:, -1]).argmax(1)


def test_a_large_shared_base_is_everybodys_classifier():
    base = np.random.default_rng(0).standard_normal((10, 61))
    for scale, low, high in [(0.0, 0.0, 0.3), (1e6, 0.99, 1.0)]:
        pairs = [client(k, scale * base) for k in range(100)]
        right = np.concatenate([labelled(base, x) == y for x, y in pairs])
        assert low <= right.mean() <= high


def test_iid_clients_have_one_classifier_and_centred_inputs():
    common = np.random.default_rng(0).standard_normal((10, 61))
    pairs = [client(k, common=common, alpha=5.0, beta=5.0, form="fedprox") for k in range(100)]
    x = np.concatenate([x for x, _ in pairs])
    right = np.concatenate([labelled(common, x) == y for x, y in pairs])
    assert right.mean() > 0.999  # inputs were rounded to float32 after they were labelled
    assert abs(x.mean(0) * len(x) ** 0.5 * np.arange(1, 61) ** 0.6).max() < 5  # standard errors


def test_base_scale_defaults_to_the_forms():
    for form in FORMS:
        written = Synthetic(form=form, base_scale=FORMS[form].base_scale, num_clients=5).load()
        assert torch.equal(Synthetic(form=form, num_clients=5).load().train.y, written.train.y)


def test_the_seed_alone_decides_and_a_client_does_not_depend_on_how_many_there_are():
    few, many = (Synthetic(num_clients=n).load() for n in (10, 500))
    assert torch.equal(few.train.x, many.train.x[many.groups < 10])
    assert torch.equal(few.train.y, many.train.y[many.groups < 10])
    assert not torch.equal(Synthetic(seed=1, num_clients=10).load().train.x[0], few.train.x[0])


def test_other_partitions_pool_the_clients():
    data = federate(Synthetic(num_clients=30), DirichletClass(0.5), 10, val_fraction=0.1, seed=0)
    assert (data.num_clients, data.val_by_client) == (10, False)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"form": "leaf"}, "form = 'leaf' is not allowed; must be one of fedprox, fedcdr"),
        ({"beta": -1.0}, "beta = -1.0"),
        ({"base_scale": float("nan")}, "base_scale = nan"),
    ],
)
def test_hyperparameters_are_checked(values, message):
    with pytest.raises(ValueError, match=message):
        Synthetic(**values)
