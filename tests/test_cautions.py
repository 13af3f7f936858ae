"""What a user should know before a config is run, though nothing in it is wrong."""

import pytest

from fltune.experiment import Experiment


def test_a_panel_that_never_grows_is_named():
    panels = {1: 2, 31: 5, 91: None}
    data = {"name": "synthetic", "clients": 9, "val_clients": panels}
    growing = Experiment.parse({"data": data})
    assert not any("val_clients" in text for text in growing.cautions())
    (text,) = growing.with_values({"rounds": 90}).cautions()
    assert text.startswith("data.val_clients: the run ends before round 91, from which on more")


@pytest.mark.parametrize(("algorithm", "named"), [("fedavg", False), ("scaffold", True)])
def test_multiplicities_go_with_methods_that_weigh_clients(algorithm, named):
    drawn = {"kind": "with_replacement", "multiplicity": True}
    found = Experiment.parse({"participation": drawn, "algorithm": algorithm}).cautions()
    assert any("scaffold counts every client alike" in text for text in found) == named
    plain = Experiment.parse({"participation": "with_replacement", "algorithm": algorithm})
    assert not any("counts every client alike" in text for text in plain.cautions())


def test_who_is_drawn_by_samples_is_not_to_count_by_them_as_well():
    drawn = {"kind": "with_replacement", "by_samples": True, "multiplicity": True}
    for weighting, count in (("uniform", 0), ("samples", 1)):
        algorithm = {"name": "fedavg", "weighting": weighting}
        found = Experiment.parse({"participation": drawn, "algorithm": algorithm}).cautions()
        assert sum("expected weights are n_k / n" in text for text in found) == count


def test_updates_that_would_be_too_old_are_foreseen():
    many = {"kind": "asynchronous", "concurrency": 50, "buffer": 5}
    raw = {"algorithm": "fedbuff", "participation": many}
    (text,) = Experiment.parse({**raw, "algorithm": {"name": "fedbuff", "window": 5}}).cautions()
    assert "all that are older than 4 are discarded" in text
    assert Experiment.parse(raw).cautions() == []
