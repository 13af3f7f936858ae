"""What clients hold and how their gradients point: label histograms and cosines at one model."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import torch
from numpy.typing import NDArray

from fltune.experiment import Experiment
from fltune.pieces import build_module, load_data
from fltune.report.figures import Picture, View, styled
from fltune.report.partition_plot import view
from fltune.reproduce.computed import Computed, Setup

SHOWN = 20
"""Clients whose gradients are compared at most, as in the paper's heat maps: spread evenly over
all, for shards of sorted samples make neighbours alike."""
ALIKE = 0.1
"""Cosine above which two clients count as alike."""


def label_histogram(setup: Setup) -> Computed:
    """Draw who holds what, as Figure 4 of the FedSUM paper, and say how uneven it is."""
    values: dict[str, list[float]] = {}
    rows, views = [], []
    for label, world in setup.worlds.items():
        data = load_data(world.data, world.seed)
        shares = data.histograms().double()
        shares = shares / shares.sum(1, keepdim=True)
        three = float(shares.topk(3, dim=1).values.sum(1).mean())
        uneven = float(data.sizes.max() / data.sizes.min())
        values[f"{label}: share of a client's three largest classes"] = [three]
        values[f"{label}: largest client over the smallest"] = [uneven]
        rows.append((label, str(data.num_clients), f"{three:.3f}", f"{uneven:.2f}"))
        views.append(view(label, world.data, world.seed, data))
    heads = ("data", "clients", "share of the three largest classes", "largest / smallest client")
    pictures = [Picture("histogram", "Who holds what", "data", views)]
    return Computed(values, heads, rows, pictures, seeds=1)


def gradient_cosines(setup: Setup) -> Computed:
    """Compare clients' full gradients at the initial model, as Figure 7 of the FedCOM paper."""
    values: dict[str, list[float]] = {}
    rows, views = [], []
    for label, world in setup.worlds.items():
        found = [cosines(world, seed) for seed in range(setup.seeds)]
        pairs = [m[np.triu_indices(len(m), 1)] for m in found]
        alike = [float(((m > ALIKE).sum(1) - 1).max()) for m in found]
        numbers = {
            "mean": [float(p.mean()) for p in pairs],
            "smallest": [float(p.min()) for p in pairs],
            "share above 0": [float((p > 0).mean()) for p in pairs],
            "most alike others": alike,
        }
        values |= {f"{label}: {name}": each for name, each in numbers.items()}
        rows.append((label, *(f"{np.mean(each):.3f}" for each in numbers.values())))
        drawn = go.Figure(go.Heatmap(z=found[0].tolist(), zmin=-1, zmax=1, colorscale="RdBu"))
        styled(drawn, xaxis_title="client", yaxis_title="client")
        text = f"{label}: cosine of the gradients of {len(found[0])} clients at one initial model, "
        views.append(View(label, f"{text}from -1 to 1.", drawn))
    heads = ("data", "mean cosine", "smallest", "share above 0", f"most others above {ALIKE}")
    pictures = [Picture("cosines", "Cosines of the clients' gradients", "data", views)]
    return Computed(values, heads, rows, pictures, setup.seeds)


def cosines(world: Experiment, seed: int) -> NDArray[np.float64]:
    """Return the cosines of clients' gradients at the initial model, [C, C] with C = min(N, 20).

    Args:
        world: data, clients and model.
        seed: of the partition and the initial model.
    """
    chosen = world.with_values({"seed": seed})
    data = load_data(chosen.data, seed)
    module = build_module(chosen, data)
    weights = [p for p in module.network.parameters() if p.requires_grad]
    rows = []
    shown = min(SHOWN, data.num_clients)
    for client in (place * data.num_clients // shown for place in range(shown)):
        held = data.client(client)
        loss = module.losses(module.network(data.train.x[held]), data.train.y[held]).mean()
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights)]))
    gradients = torch.nn.functional.normalize(torch.stack(rows).double(), dim=1)
    return (gradients @ gradients.T).numpy()
