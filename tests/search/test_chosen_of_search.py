"""What a reproduction says that a search has chosen."""

from fake_workers import Disk, Night, config_of, well

from fltune.reproduce.readings import Evidence
from fltune.reproduce.reproduction import results_table


def test_it_is_told_with_what_follows_from_it(tmp_path):
    space = {
        "server.lr": {"grid": [0.5, 1.0]},
        "server.beta": {"paired": [0.2, 0.4], "with": "server.lr"},
    }
    night = Night(config_of({"A": {"space": space}}), Disk(tmp_path), end=well)
    heads, (row,) = results_table(Evidence.found(night.work().lanes))
    assert row[heads.index("chosen")] == "server.lr = 0.5, server.beta = 0.2"
