"""A search file that is right, and ways to make it wrong."""

import pytest
import yaml

from fltune.errors import ConfigError
from fltune.search.config import SearchConfig

GOOD = """
experiment:
  data: {name: digits, clients: 20}
  participation: {kind: uniform, per_round: 5}
  server: {name: fedgm, beta: 0.8, nu: 0.5}
  client: {lr: 0.1, steps: 2}
  rounds: 10
methods:
  FedAvg:
    server: {name: fedavg}
    space: {server.lr: {grid: [0.5, 1, 2]}}
  FedGM:
    space: {server.lr: {loguniform: [1e-1, 5]}, server.beta: {choice: [0.7, 0.9]}}
search: {trials: 4}
"""


def assert_the_frozen_file_says_the_same(config):
    """Read a config again from the file that a search keeps of it."""
    again = SearchConfig.parse(yaml.safe_load(config.as_yaml()))
    assert list(again.methods) == list(config.methods)
    for name, method in config.methods.items():
        other = again.method(name)
        assert (other.raw, other.to_yaml()) == (method.raw, method.to_yaml())
        assert (other.inherit, other.scenario) == (method.inherit, method.scenario)
    assert again.settings.search == config.settings.search


def good():
    return yaml.safe_load(GOOD.replace("1e-1", "0.1"))


def changed(key, value):
    """The good file with one dotted key set; the keys of a space have dots of their own."""
    raw = good()
    here = raw
    *parents, last = key.split("/")
    for part in parents:
        here = here[part]
    here[last] = value
    return raw


def problems_of(raw, **options):
    with pytest.raises(ConfigError) as caught:
        SearchConfig.parse(raw, "my.yaml", **options)
    assert str(caught.value).startswith("my.yaml: ")
    return caught.value.problems
