"""What one trial gets, and how many trials that lets run at once, on one machine and on several."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fltune.errors import ConfigError
from fltune.search.concurrency import concurrency
from fltune.search.config import SearchConfig
from fltune.search.preparation import check_data
from fltune.search.resources import Resources
from fltune.search.settings import Settings


def settings(cpus=1.0, gpus=0.0, concurrent=None):
    raw = {"resources": {"cpus": cpus, "gpus": gpus}, "search": {"concurrent": concurrent}}
    return Settings.model_validate(raw)


@given(
    hundredths=st.integers(1, 400),
    cores=st.lists(st.integers(4, 128), min_size=1, max_size=3),
)
def test_a_share_of_a_core_is_counted_exactly(hundredths, cores):
    machines = [{"CPU": float(n)} for n in cores]
    fits = concurrency(settings(cpus=hundredths / 100), *machines)
    assert fits == sum(100 * n // hundredths for n in cores)  # 7 / 0.28 is 24.99 in floats


@pytest.mark.parametrize(
    ("gpus", "there", "fits"),
    [
        (0.5, 1, 2),
        (0.4, 2, 4),  # two on each; a share is of one GPU
        (0.3, 2, 6),
        (0.6, 2, 2),
        (1, 4, 4),
        (2, 4, 2),
        (3, 4, 1),
    ],
)
def test_gpus_are_shared_or_whole(gpus, there, fits):
    machine = {"CPU": 64.0, "GPU": float(there)}
    assert concurrency(settings(gpus=gpus), machine) == fits


def test_a_trial_runs_on_one_machine():
    three_cores = {"CPU": 3.0}
    assert concurrency(settings(cpus=2), three_cores, three_cores) == 2  # of six cores, four
    assert concurrency(settings(cpus=2, concurrent=1), three_cores, three_cores) == 1


@pytest.mark.parametrize(
    ("cpus", "gpus", "problem"),
    [
        (4, 0, "resources.cpus: found 4 per trial; there are 3 on the largest of 2 machines"),
        (1, 2, "resources.gpus: found 2 per trial; there are 1 on the largest of 2 machines"),
        (3, 0.5, "resources: found cpus: 3, gpus: 0.5 per trial; no machine has both"),
    ],
)
def test_what_no_machine_has_is_refused(cpus, gpus, problem):
    with pytest.raises(ConfigError) as caught:
        concurrency(settings(cpus, gpus), {"CPU": 3.0}, {"CPU": 1.0, "GPU": 1.0})
    assert caught.value.problems == [problem]


@pytest.mark.parametrize(
    ("cpus", "gpus", "text"),
    [
        (1, 0, "1 core, 0 GPUs each"),
        (2, 1, "2 cores, 1 GPU each"),
        (0.5, 0.25, "0.5 cores, 0.25 GPUs each"),
    ],
)
def test_resources_in_words(cpus, gpus, text):
    assert str(Resources(cpus=cpus, gpus=gpus)) == text


@pytest.mark.parametrize(
    ("gpus", "wanted", "device"),
    [
        (0, "auto", "cpu"),
        (0.5, "auto", "cuda"),
        (1, "cpu", "cpu"),
        (1, "cuda", "cuda"),
    ],
)
def test_a_trial_is_where_its_resources_are(gpus, wanted, device):
    assert Resources(gpus=gpus).device(wanted) == device


def test_a_gpu_that_nobody_counts_is_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    raw = {
        "experiment": {"data": "digits", "device": "cuda"},
        "methods": {
            "A": {"space": {"client.lr": {"grid": [0.1]}}},
            "B": {"device": "cpu", "space": {}},
        },
    }
    with pytest.raises(ConfigError) as caught:
        check_data(SearchConfig.parse(raw))
    assert caught.value.problems == [
        "methods.A.device: found 'cuda', and resources.gpus is 0: reserve a GPU, or take "
        "device: cpu"
    ]


def test_a_gpu_and_a_half_is_refused_by_its_key():
    raw = {
        "experiment": {"data": "digits"},
        "methods": {"A": {"space": {"client.lr": {"grid": [0.1]}}}},
        "resources": {"gpus": 1.5},
    }
    with pytest.raises(ConfigError) as caught:
        SearchConfig.parse(raw)
    assert caught.value.problems == [
        "resources.gpus: found 1.5; a share is of one GPU, or take whole ones"
    ]
