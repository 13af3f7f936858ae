"""The five papers' grids, as the specification beside this repository prints them."""

from pathlib import Path

import pytest
import yaml

from fltune.search.config import SearchConfig
from fltune.search.space_parser import Surroundings, parse_space
from fltune.server.multistage import solve_betas, solve_stage_ends

FILE = Path(__file__).parents[3] / "shared" / "spec" / "paper_grids.yaml"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="the specification is not here")

NAMES = {"client.lr_0": "client.lr"}
EXPERIMENT = {
    "data": {"name": "digits", "clients": 20},
    "client": {"steps": 2},
    "rounds": 500,
}


def papers():
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))["papers"]


def grid_of(paper, name):
    return next(g for g in papers()[paper]["grids"] if g["id"] == name)


def as_space(lists):
    return {NAMES.get(key, key): {"grid": values} for key, values in lists.items()}


def space_of(written):
    """Read a space about whose experiment nothing is known."""
    found = []
    space = parse_space(written, Surroundings(None, {}, lambda section: {}), "space", found)
    assert not found
    return space


def method_of(space, **experiment):
    methods = {"M": {"space": space}}
    raw = {"experiment": {**EXPERIMENT, **experiment}, "methods": methods}
    return SearchConfig.parse(raw).method("M")


def lists_in(node):
    """Yield every mapping of names to lists of plain values, anywhere in the file."""
    if isinstance(node, dict):
        lists = {k: v for k, v in node.items() if isinstance(v, list) and v and k != "experiments"}
        plain = {k: v for k, v in lists.items() if not any(isinstance(x, (dict, list)) for x in v)}
        if plain:
            yield plain
        for value in node.values():
            yield from lists_in(value)
    elif isinstance(node, list):
        for value in node:
            yield from lists_in(value)


def test_every_list_of_the_papers_is_a_grid_with_each_cell_once():
    seen = 0
    for paper in papers().values():
        for node in (*paper["grids"], *paper.get("sweeps", [])):
            for part in ("space", "single_stage", "recommended", "variant"):
                for lists in lists_in(node.get(part)):
                    space = space_of(as_space(lists))
                    cells = {repr(cell) for cell in space.grid()}
                    assert len(cells) == space.cells
                    seen += 1
    assert seen >= 20


def test_cyclic_participation_has_48_runs():
    grid = grid_of("000-cycp", "cycp-grid")
    method = method_of(as_space(grid["space"]), client={})
    assert method.space.cells == grid["runs"] == 48
    assert len(list(method.space.grid())) == 48


@pytest.mark.parametrize("form", ["tied", "paired"])
def test_fedsum_ties_the_server_rate_to_the_clients(form):
    grid = grid_of("001-fedsum", "fedsum-grid")
    assert grid["constraint"] == "client.lr_0 * server.lr = 0.01"
    (printed,) = grid["paired"].values()
    space = as_space(grid["space"])
    space["server.lr"] = (
        {"tied": "0.01 / client.lr"} if form == "tied" else {"paired": printed, "with": "client.lr"}
    )
    method = method_of(space)
    assert method.space.cells == grid["runs"] == 4
    values = [method.space.resolve(point) for point in method.space.grid()]
    assert [v["server.lr"] for v in values] == printed  # to the last bit
    assert [v["client.lr"] for v in values] == grid["space"]["client.lr_0"]
    assert [method.experiment(p).server.lr for p in method.space.grid()] == printed


ALGORITHMS = {"FedAvg": "fedavg", "FedProx": "fedprox", "SCAFFOLD": "scaffold", "FedDC": "feddc",
              "FedCDR": "fedcdr", "FedDR": "feddr"}  # fmt: skip


def test_fedcdr_crosses_every_grid_with_the_clients_rate():
    paper = papers()["003-fedcdr"]
    spaces = {g["id"]: g["space"] for g in paper["grids"]}
    spaces["fedcdr-feddr"] = spaces["fedcdr-fedcdr"]  # recommended: the same grid
    cells = {}
    for grid in paper["grids"]:
        lists = {**paper["common"]["space"], **spaces[grid["id"]]}
        algorithm = {"name": ALGORITHMS[grid["method"]]}
        cells[grid["id"]] = method_of(as_space(lists), algorithm=algorithm).space.cells
        assert cells[grid["id"]] == grid["runs"]
    once = sum(n for name, n in cells.items() if name not in ("fedcdr-feddc-b", "fedcdr-feddr"))
    assert once == paper["totals"]["per_setting_CR_methods"]


def test_fedgm_is_one_conditional_space_or_three_methods():
    grid = grid_of("004-fedgm", "fedgm-grid")
    runs = grid["runs_by_method"]
    lists = as_space(grid["space"])
    server = {"name": "fedgm"}
    assert method_of(lists, server=server).space.cells == runs["FedGM"]
    momentum = {**lists, "server.nu": 1.0}
    assert method_of(momentum, server=server).space.cells == runs["FedAvgM"]
    rates = {"server.lr": lists["server.lr"], "server.nu": {"fixed": 0.0}}
    assert method_of(rates, server=server).space.cells == runs["FedAvg"]
    nu = [0.0, 1.0, *grid["space"]["server.nu"]]
    together = {
        **lists,
        "server.nu": {"grid": nu},
        "server.beta": {**lists["server.beta"], "when": {"server.nu": "> 0"}},
    }
    space = method_of(together, server=server).space
    assert space.cells == grid["runs"] == 130
    assert len({repr(sorted(p.items())) for p in space.grid()}) == 130


@pytest.mark.parametrize("figure", ["fedgm-fig2-stages", "fedgm-fig8-stages"])
def test_fedgm_stages_are_the_printed_ones_given_or_solved(figure):
    stages = grid_of("004-fedgm", figure)["space"]["stages"]
    rates, ends = stages["server.lr"], stages["ends"]
    rounds = ends[-1]
    given = {"server.lrs": {"fixed": rates}, "server.stage_ends": {"fixed": ends}}
    searched = {**given, "server.beta": {"grid": [0.7, 0.9]}}
    solved = {
        "server.lr": rates[0],
        "server.drop": {"grid": [0.5]},
        "server.stages": 3,
        "server.beta": 0.9,
        "server.stage_ends": {"stages": "w2"},
        "server.betas": {"stages": "w1"},
    }
    for space in (searched, solved):
        method = method_of(space, server={"name": "multistage"}, rounds=rounds)
        server = method.experiment({**method.space.first(), "server.beta": 0.9}).server.build()
        server.prepare(rounds)
        assert server.etas == rates
        assert server.ends == ends == solve_stage_ends(rates, rounds)
    assert server.stage_betas == solve_betas(rates, 0.9, [0.9] * 3)
