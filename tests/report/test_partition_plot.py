import sys

import pytest
import torch

from fltune.data.federated import FederatedData, Split
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.pieces import load_data
from fltune.report.partition_plot import LARGEST_BUBBLE, figure, plot_partition, title

PARTITION = {"kind": "dirichlet_client_lognormal", "alpha": 0.1}


def experiment(clients=20, **data):
    return Experiment.parse({"data": {"clients": clients, **data}, "device": "cpu"})


def drawn(chosen):
    data = load_data(chosen.data, chosen.seed)
    return figure(data, title(chosen.data, chosen.seed, data)), data


def test_bubbles_show_every_cell_with_areas_of_its_samples():
    chart, data = drawn(experiment(partition=PARTITION))
    bubbles, sizes = chart.data
    cells = dict(zip(zip(bubbles.x, bubbles.y, strict=True), bubbles.marker.size, strict=True))
    counts = data.histograms()
    assert {(i, c): n for (i, c), n in cells.items()} == {
        (i, c): int(counts[i, c]) for i, c in counts.nonzero().tolist()
    }
    assert bubbles.marker.sizemode == "area"
    # plotly: an area mode's diameter is sqrt(size / sizeref * 2)
    assert (2 * max(cells.values()) / bubbles.marker.sizeref) ** 0.5 == LARGEST_BUBBLE
    assert f"largest bubble: {int(counts.max())} samples" in chart.layout.yaxis.title.text
    assert list(sizes.y) == data.sizes.tolist()


def test_many_clients_are_a_heat_map_of_shares():
    chart, data = drawn(experiment(101, partition=PARTITION))
    shares = torch.tensor(chart.data[0].z, dtype=torch.float64)
    assert chart.data[0].type == "heatmap"
    assert shares.shape == (10, 101)
    torch.testing.assert_close(shares.sum(0), torch.ones(101, dtype=torch.float64))
    assert torch.equal(torch.tensor(chart.data[0].customdata).T, data.histograms())


def test_more_clients_than_columns_are_left_out_and_the_title_says_so():
    chart, _ = drawn(experiment(1200))
    assert len(chart.data[1].y) == 1000
    assert "1,200 clients (the first 1,000 are drawn)" in chart.layout.title.subtitle.text


def test_the_title_says_what_is_drawn():
    chosen = experiment(name="synthetic", beta=3.0, partition=PARTITION, partition_seed=5)
    lines = title(chosen.data, chosen.seed, load_data(chosen.data, chosen.seed))
    assert lines[0].startswith("synthetic (beta 3.0): dirichlet_client_lognormal (alpha 0.1, mu 4")
    assert lines[0].endswith("min_size 1), seed 5")
    assert lines[1].startswith("20 clients with ")
    assert "samples (min / median / max)" in lines[1]
    assert lines[2].startswith("allocation scale: clients ask for ")


def test_a_regression_has_sizes_alone():
    split = Split(torch.zeros(3, 1), torch.zeros(3, 1))
    clients = [torch.tensor([0]), torch.tensor([1, 2])]
    data = FederatedData.from_clients(split, split, split, clients, None)
    (sizes,) = figure(data, ["headline"]).data
    assert list(sizes.y) == [1, 2]


def test_html_is_self_contained_and_reproducible(tmp_path):
    chosen = experiment()
    for name in ("a.html", "b.html"):
        plot_partition([chosen, chosen], tmp_path / name)
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert text == (tmp_path / "b.html").read_text(encoding="utf-8")
    assert 'src="http' not in text
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text
    assert ". ".join(title(chosen.data, chosen.seed, load_data(chosen.data, chosen.seed))) in text


def test_different_data_need_a_choice(tmp_path):
    with pytest.raises(ConfigError, match="say whose to draw with --method"):
        plot_partition([experiment(), experiment(30)], tmp_path / "a.html")


def test_images_need_kaleido(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kaleido", None)
    message = r"as \.svg .* needs the package kaleido .*pip install 'fltune\[images\]'"
    with pytest.raises(ConfigError, match=message):
        plot_partition([experiment()], tmp_path / "a.svg")


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        plot_partition([experiment()], tmp_path / "missing" / "a.html")
