"""A file that extends another one."""

import pytest
import yaml

from fltune.errors import ConfigError
from fltune.search.extends import read_extended

BASE = {
    "experiment": {"rounds": 4, "server": {"name": "fedgm", "beta": 0.8}},
    "methods": {
        "A": {"space": {"server.lr": {"loguniform": [0.1, 1.0]}, "server.beta": {"grid": [0.5]}}},
        "B": {"space": {"server.lr": {"grid": [1]}}},
    },
}


@pytest.fixture
def write(tmp_path):
    def at(name, raw):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(raw))
        return path

    return at


def test_what_differs_is_laid_over_key_by_key(write):
    write("base.yaml", BASE)
    over = {"extends": "../base.yaml", "experiment": {"rounds": 9, "server": {"beta": 0.1}}}
    raw = read_extended(write("more/own.yaml", over))
    assert raw["experiment"] == {"rounds": 9, "server": {"name": "fedgm", "beta": 0.1}}
    assert raw["methods"] == BASE["methods"]
    assert "extends" not in raw


def test_another_component_drops_the_old_ones_keys(write):
    write("base.yaml", BASE)
    over = {"extends": "base.yaml", "experiment": {"server": {"name": "fedavg"}}}
    raw = read_extended(write("own.yaml", over))
    assert raw["experiment"]["server"] == {"name": "fedavg"}


def test_a_dimension_is_replaced_whole_and_null_removes_a_method(write):
    write("base.yaml", BASE)
    over = {"A": {"space": {"server.lr": {"grid": [1, 2]}}}, "B": None}
    raw = read_extended(write("own.yaml", {"extends": "base.yaml", "methods": over}))
    space = {"server.lr": {"grid": [1, 2]}, "server.beta": {"grid": [0.5]}}
    assert raw["methods"] == {"A": {"space": space}}


def test_a_chain_is_followed_and_a_ring_is_refused(write):
    write("a.yaml", BASE)
    write("b.yaml", {"extends": "a.yaml", "name": "b"})
    raw = read_extended(write("c.yaml", {"extends": "b.yaml"}))
    assert (raw["name"], raw["experiment"]["rounds"]) == ("b", 4)
    path = write("a.yaml", {"extends": "c.yaml"})
    with pytest.raises(ConfigError, match=r"in a ring: a\.yaml -> c\.yaml -> b\.yaml"):
        read_extended(path)


@pytest.mark.parametrize(
    ("parent", "message"),
    [(["a.yaml"], "the name of one file belongs there"), ("none.yaml", "cannot be read")],
)
def test_a_parent_that_is_none_is_refused(write, parent, message):
    with pytest.raises(ConfigError, match=message):
        read_extended(write("own.yaml", {"extends": parent}))
