import json
import textwrap

import pytest
import torch

from fltune import dotted
from fltune.errors import ConfigError
from fltune.experiment import Experiment
from fltune.federation.schedules import InverseSqrt
from fltune.server.fedgm import FedGM
from fltune.server.torch_optimizer import TorchServer


def problems_of(raw):
    with pytest.raises(ConfigError) as caught:
        Experiment.parse(raw)
    return caught.value.problems


def test_an_empty_config_is_plain_fedavg_on_digits():
    experiment = Experiment.parse({})
    names = [experiment.data, experiment.model, experiment.algorithm, experiment.server]
    assert [s.component_name for s in names] == ["digits", "mlp", "fedavg", "fedavg"]
    assert experiment.server.build().lr == 1.0


def test_short_names_stand_for_sections():
    short = {"data": "digits", "participation": "full", "server": "fedgm", "algorithm": "fedavg"}
    long = {
        "data": {"name": "digits"},
        "participation": {"kind": "full"},
        "server": {"name": "fedgm"},
        "algorithm": {"name": "fedavg"},
    }
    assert Experiment.parse(short) == Experiment.parse(long)
    dirichlet = {"data": {"name": "digits", "partition": "dirichlet"}}
    assert Experiment.parse(dirichlet).data.partition.build().alpha == 0.5


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"sever": "fedgm"}, "sever: unknown key; did you mean 'server'?"),
        ({"client": {"learning_rate": 1}}, "client.learning_rate: unknown key"),
        ({"client": {"lr": "quick"}}, "client.lr: found 'quick'; should be a valid number"),
        ({"client": {"lr": 0}}, "client.lr: found 0; should be greater than 0"),
        ({"client": {"lr": -0.1}}, "client.lr: found -0.1; should be greater than 0"),
        ({"client": {"momentum": 1}}, "client.momentum: found 1; should be less than 1"),
        ({"client": {"batch_size": 0}}, "client.batch_size: found 0; should be greater"),
        ({"client": {"batch_size": "whole"}}, "client.batch_size: found 'whole'; should be"),
        ({"client": {"epochs": 1, "steps": 2}}, "client: epochs = 1 and steps = 2 are both set"),
        ({"client": 3}, "client: found 3; should be"),
        ({"server": {"name": "fedgm", "beta": 1}}, "server.beta: found 1; should be less than 1"),
        ({"server": {"name": "fedgm", "nu": 1.5}}, "server.nu: found 1.5; should be less than or"),
        ({"server": {"name": "fedgm", "lr": 0.0}}, "server.lr: found 0.0; should be greater than"),
        ({"server": {"name": "fedavg", "beta": 0.9}}, "server.beta: unknown key"),
        (
            {"server": "fedgn"},
            "server.name: unknown server optimizer 'fedgn'; did you mean 'fedgm'?; known: fedavg,",
        ),
        ({"server": {"name": "multistage", "betas": [0.9]}}, "server: betas has 1 entries for 3"),
        (
            {"server": {"name": "multistage", "stage_ends": [1, 2, 50]}},
            "server: stage_ends ends at 50, but the run has 100 rounds",
        ),
        ({"server": "torch.nn:ReLU"}, "server.name: torch.nn:ReLU is no server op"),
        ({"algorithm": "fedavrg"}, "algorithm.name: unknown algorithm 'fedavrg'"),
        (
            {"algorithm": {"name": "fedavg", "weighting": "sample"}},
            "algorithm.weighting: found 'sam",
        ),
        (
            {"data": "digitz"},
            "data.name: unknown data set 'digitz'; did you mean 'digits'?; known: digits, mnist",
        ),
        ({"data": {"name": "digits", "clients": 0}}, "data.clients: found 0; should be greater"),
        ({"data": {"name": "digits", "val_fraction": 0}}, "data.val_fraction: found 0; should be"),
        (
            {"data": {"name": "digits", "val_from": "client"}},
            "data.val_from: found 'client'; should be 'pool', 'clients' or 'test'",
        ),
        (
            {"data": {"name": "digits", "resplit": [0.9, 0.1]}},
            "data.resplit: found [0.9, 0.1]; write three shares above 0, such as [0.8, 0.1, 0.1]",
        ),
        (
            {"data": {"name": "digits", "resplit": [1.0, 0.1, 0]}},
            "data.resplit: found [1.0, 0.1, 0]; write three shares above 0, such as",
        ),
        (
            {"data": {"name": "digits", "resplit": [0.8, 0.1, 0.2]}},
            "data.resplit: found [0.8, 0.1, 0.2]; the shares must sum to 1, these do to 1.1",
        ),
        (
            {"data": {"name": "digits", "val_from": "clients", "val_clients": 51}},
            "data.val_clients: found 51; there are 50 clients (data.clients)",
        ),
        (
            {"data": {"name": "digits", "val_from": "clients", "val_clients": {1: 5, 9: 51}}},
            "data.val_clients: found 51; there are 50 clients (data.clients)",
        ),
        (
            {"data": {"name": "digits", "val_from": "clients", "val_clients": {1: 5, 9: 0}}},
            "data.val_clients.9: found 0; should be greater than or equal to 1",
        ),
        (
            {"data": {"name": "digits", "val_from": "clients", "val_clients": {"a": 5}}},
            "data.val_clients.a.[key]: found 'a'; should be a valid integer",
        ),
        (
            {"data": {"name": "digits", "val_from": "clients", "val_clients": {5: 5}}},
            "data.val_clients: a panel that starts at round 5; must start at round 1",
        ),
        (
            {"data": {"name": "digits", "val_from": "clients", "val_clients": [5]}},
            "data.val_clients: found [5]; should be a valid integer",
        ),
        (
            {"data": {"name": "digits", "val_clients": 5}},
            "data.val_clients: whose the validation samples are is not known; set data.val_from",
        ),
        (
            {"data": {"name": "digits", "partition": {"kind": "dirichlet", "alpha": 0}}},
            "data.partition.alpha: found 0; should be greater than 0",
        ),
        (
            {"data": {"name": "digits", "partition": {"kind": "dirichlet", "alhpa": 1}}},
            "data.partition.alhpa: unknown key; did you mean 'alpha'?",
        ),
        (
            {"model": {"name": "mlp", "hidden": [8, "x"]}},
            "model.hidden.1: found 'x'; should be a v",
        ),
        (
            {"loss": {"name": "squared_error", "gamma": 2}},
            "loss: found {'name': 'squared_error', 'gamma': 2}; a loss is a name or an import path",
        ),
        (
            {"loss": "crossentropy"},
            "loss: unknown loss 'crossentropy'; did you mean 'cross_entropy'?; known: ",
        ),
        (
            {"participation": {"kind": "uniform", "per_round": 51}},
            "participation: per_round = 51 is more than the 50 clients",
        ),
        (
            {"participation": {"kind": "uniform", "per_round": 0}},
            "participation.per_round: found 0",
        ),
        (
            {"participation": {"kind": "trace"}},
            "participation: a trace has rounds or a file of them, one of the two; found neither",
        ),
        (
            {"participation": {"kind": "trace", "file": "none.csv"}},
            "participation: none.csv: cannot be read: No such file",
        ),
        (
            {"participation": {"kind": "trace", "rounds": [[50]]}},
            "participation: rounds[0] names client 50; ids are 0..49 (data.clients)",
        ),
        (
            {"participation": {"kind": "cycp", "groups": 6, "per_round": 9}},
            "participation: per_round = 9 is more than the 8 clients of the smallest of 6 groups",
        ),
        (
            {"participation": {"kind": "groups", "formation": "sorted"}},
            "participation.formation: found 'sorted'; must be one of shuffled, sorted_by_label",
        ),
        (
            {"participation": {"kind": "with_replacement", "probabilities": [1.0]}},
            "participation: probabilities has 1 entries for 50 clients (data.clients)",
        ),
        (
            {"participation": {"kind": "markov", "probability": 0.9, "mean_spell": 2}},
            "participation: Markov: mean_spell = 2 is not allowed for a client that is there 0.9",
        ),
        ({"rounds": 0}, "rounds: found 0; should be greater than or equal to 1"),
        ({"rounds": 2.5}, "rounds: found 2.5; should be a valid integer"),
        ({"seed": -1}, "seed: found -1; should be greater than or equal to 0"),
        ({"dtype": "float16"}, "dtype: found 'float16'; should be 'float32' or 'float64'"),
        (
            {"strategy": "stack"},
            "strategy: found 'stack'; should be 'auto', 'fastest', 'loop', 'stacked', 'dense' or "
            "'compiled'",
        ),
    ],
    ids=lambda v: json.dumps(v) if isinstance(v, dict) else None,
)
def test_each_wrong_value_has_its_dotted_key(raw, message):
    (found,) = problems_of(raw)
    assert found.startswith(message)


def test_all_problems_come_at_once_with_their_source():
    raw = {
        "client": {"lr": 0, "epoch": 2},
        "server": {"name": "fedgm", "beta": 1.0, "nuu": 0.5},
        "data": {"name": "digits", "partition": {"kind": "dirichlet", "alpha": -1}},
        "algorithm": "fedavrg",
        "roundz": 5,
    }
    with pytest.raises(ConfigError) as caught:
        Experiment.parse(raw, source="exp.yaml")
    keys = {line.split(":")[0] for line in caught.value.problems}
    assert keys == {
        "client.lr",
        "client.epoch",
        "server.beta",
        "server.nuu",
        "data.partition.alpha",
        "algorithm.name",
        "roundz",
    }
    assert str(caught.value).startswith("exp.yaml: 7 problems\n")


@pytest.mark.parametrize("full", [None, "full"])
def test_a_full_batch_is_null_or_full(full):
    experiment = Experiment.parse({"client": {"batch_size": full}})
    assert experiment.client.build().batch_size is None
    assert experiment.as_params()["client.batch_size"] is None


def test_a_schedule_is_a_section():
    experiment = Experiment.parse({"client": {"schedule": {"name": "inverse_sqrt", "period": 5}}})
    assert experiment.client.build().schedule == InverseSqrt(5.0)
    assert experiment.as_params()["client.schedule.period"] == 5.0


ADAM = {"name": "torch.optim:Adam", "lr": 0.1, "betas": [0.9, 0.99]}


def test_torch_optimizers_serve():
    section = Experiment.parse({"server": ADAM}).server
    server = section.build()
    assert isinstance(server, TorchServer)
    assert server.optimizer is torch.optim.Adam
    assert (server.options["lr"], server.options["betas"]) == (0.1, (0.9, 0.99))
    assert Experiment.parse({"server": "torch.optim:SGD"}).server.build().options["momentum"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": "x"}, "server.lr: found 'x'; should be a valid number"),
        ({"lr": -1}, "server: Invalid learning rate: -1"),
        ({"betas": [0.9]}, "server.betas.1: missing"),
        ({"betas": [0.9, 1.5]}, "server: Invalid beta parameter at index 1: 1.5"),
        ({"momentum": 0.9}, "server.momentum: unknown key; known: name, lr, betas, eps"),
        ({"maximize": True}, "server.maximize: unknown key"),  # would go uphill
        ({"params": []}, "server.params: unknown key"),
    ],
    ids=str,
)
def test_torch_optimizers_are_checked(options, message):
    (found,) = problems_of({"server": {**ADAM, **options}})
    assert found.startswith(message)


def test_components_by_import_path(tmp_path, monkeypatch):
    (tmp_path / "my_parts.py").write_text(
        textwrap.dedent("""
        from dataclasses import dataclass
        from torch import nn
        from fltune.algorithms.base import Algorithm
        from fltune.federation import LocalProblem
        from fltune.parameters import parameter

        @dataclass(frozen=True)
        class Prox(Algorithm):
            mu: float = parameter(0.1, "proximal weight", ge=0)

            def local_problem(self, x, server, client, info):
                return LocalProblem(start=x, mu=self.mu, anchor=x)

        class Net(nn.Sequential):
            def __init__(self, num_classes: int, width: int = 4):
                super().__init__(nn.Linear(64, width), nn.Linear(width, num_classes))
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    raw = {"algorithm": {"name": "my_parts:Prox", "mu": 0.3}, "model": "my_parts:Net"}
    experiment = Experiment.parse(raw)
    assert experiment.algorithm.build().mu == 0.3
    assert experiment.model.build(input_shape=(64,), num_classes=3)[1].out_features == 3
    assert experiment.as_params()["model.width"] == 4
    (found,) = problems_of({**raw, "algorithm": {"name": "my_parts:Prox", "mu": -1}})
    assert found.startswith("algorithm.mu: found -1")
    (found,) = problems_of({"algorithm": "my_parts:Proxy"})
    assert found.startswith("algorithm.name: algorithm 'my_parts:Proxy' cannot be imported")


FULL = {
    "data": {
        "name": "digits",
        "clients": 20,
        "partition": {"kind": "dirichlet", "alpha": 0.3},
        "partition_seed": 4,
    },
    "model": {"name": "mlp", "hidden": [16], "dropout": 0.1},
    "participation": {"kind": "uniform", "per_round": 5},
    "client": {"steps": 3, "batch_size": "full", "schedule": "inverse_sqrt"},
    "server": ADAM,
    "rounds": 7,
}


GROWING = {"data": {"name": "synthetic", "clients": 9, "val_clients": {1: 2, 31: 5, 91: None}}}


@pytest.mark.parametrize(
    "raw",
    [{}, FULL, GROWING, {"server": {"name": "multistage", "lrs": [2, 1], "nus": [0.9, 0.5]}}],
    ids=len,
)
def test_dicts_and_params_round_trip(raw):
    experiment = Experiment.parse(raw)
    stored = json.loads(json.dumps(experiment.as_dict()))
    assert Experiment.parse(stored) == experiment
    params = json.loads(json.dumps(experiment.as_params()))
    assert all(not isinstance(v, dict) for v in params.values())
    skeleton = {"server": raw.get("server", "fedavg")}
    assert Experiment.parse(skeleton).with_values(params) == experiment


def test_with_values_sets_dotted_keys_and_validates():
    experiment = Experiment.parse({"server": "fedgm"})
    changed = experiment.with_values({"server.lr": 2, "server.nu": 0.5, "rounds": 3})
    server = changed.server.build()
    assert isinstance(server, FedGM)
    assert (server.lr, server.beta, server.nu, changed.rounds) == (2.0, 0.9, 0.5, 3)
    assert experiment.rounds == 100
    with pytest.raises(ConfigError, match=r"server\.beta: found 1"):
        experiment.with_values({"server.beta": 1})
    with pytest.raises(ConfigError, match="participation: per_round"):
        Experiment.parse(FULL).with_values({"data.clients": 3})
    with pytest.raises(ConfigError, match="rounds is 100, not a section"):
        experiment.with_values({"rounds.lr": 1})


def test_a_bare_name_is_written_out_with_its_own_key():
    raw = {"participation": "uniform", "server": "fedgm"}
    dotted.assign(raw, "participation.per_round", 5)
    dotted.assign(raw, "server.beta", 0.5)
    assert raw == {
        "participation": {"kind": "uniform", "per_round": 5},
        "server": {"name": "fedgm", "beta": 0.5},
    }
    merged = dotted.merge({"participation": "uniform"}, {"participation": {"per_round": 3}})
    assert merged == {"participation": {"kind": "uniform", "per_round": 3}}
    assert Experiment.parse(raw).participation.per_round == 5


def test_a_section_without_a_name_is_the_default_component():
    experiment = Experiment.parse({"server": {"lr": 2.0}, "model": {"hidden": [5]}})
    assert (experiment.server.name, experiment.server.lr) == ("fedavg", 2.0)
    assert (experiment.model.name, experiment.model.hidden) == ("mlp", [5])


def test_a_data_set_names_the_partition_of_a_config_that_names_none():
    def kind(**data):
        return Experiment.parse({"data": data}).data.partition.component_name

    assert kind(name="digits") == kind(name="digits", partition={}) == "iid"
    assert kind(name="synthetic") == kind(name="synthetic", partition={}) == "natural"
    assert kind(name="synthetic", partition="shards") == "shards"
    written = Experiment.parse({"data": {"name": "synthetic"}}).as_dict()
    assert written["data"]["partition"] == {"kind": "natural"}
    assert "num_clients" not in written["data"]
