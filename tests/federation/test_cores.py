import os
import subprocess
import sys

import pytest

from fltune.federation import cores


@pytest.mark.parametrize(("load", "free"), [(0.2, 4), (1.0, 4), (1.4, 4), (2.1, 3), (9.0, -4)])
def test_cores_that_others_use_are_not_free(monkeypatch, load, free):
    monkeypatch.setattr(cores, "cores", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert cores.free_cores() == free


def test_there_are_some_and_no_more_than_were_given(monkeypatch):
    assert 1 <= cores.cores() <= cores.allowed() <= os.cpu_count()
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    assert cores.cores() == cores.allowed() == 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_process_that_is_bound_to_one_core_has_one():
    bound = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])"
    asked = "from fltune.federation.cores import allowed, cores; print(allowed(), cores())"
    words = [sys.executable, "-c", f"{bound}\n{asked}"]
    assert subprocess.check_output(words, text=True).split() == ["1", "1"]
