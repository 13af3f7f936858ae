"""What a driver decides on members of a pack comes to the worker that asks."""

import pytest

from fltune.search.verdicts import Bench, stopped_members


@pytest.fixture(scope="module")
def ray():
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield ray
    ray.shutdown()


@pytest.mark.search
def test_a_worker_hears_of_members_that_were_stopped_before_it_asked(ray):
    bench = Bench()
    name = bench.name
    assert bench.name == name
    ask = ray.remote(num_cpus=1)(stopped_members)
    assert ray.get(ask.remote(name, "t0")) == []
    bench.stop("t0", [3])
    bench.stop("t1", [0])
    bench.stop("t0", [1])
    assert ray.get(ask.remote(name, "t0")) == [3, 1]
    bench.close()
    assert ray.get(ask.remote(name, "t0")) == []  # nobody answers: it goes on
    bench.stop("t0", [2])
    Bench().close()
