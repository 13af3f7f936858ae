"""The check of a device needs torch and lightning alone, and says what it saw."""

import json
import subprocess
import sys

import pytest
import torch

ABSENT = ("pydantic", "ray", "optuna", "mlflow", "sklearn")


@pytest.fixture(scope="module")
def bench(load_program):
    return load_program("device_check")


def test_without_what_a_search_needs_it_checks_everything(benchmarks, tmp_path):
    script, out = benchmarks / "device_check.py", tmp_path / "found.json"
    words = [str(script), "--device", "cpu", "--quick", "--output", str(out)]
    code = (
        "import runpy, sys\n"
        f"sys.modules.update(dict.fromkeys({ABSENT}))\n"  # None: importing it raises
        f"sys.argv = {words}\n"
        f"sys.path.insert(0, {str(benchmarks)!r})\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    rows = found["correctness"]
    cases = {(r["model"], r["algorithm"], r["strategy"], r["dtype"]) for r in rows}
    assert len(cases) == len(rows) == (3 + 2) * 2 * 2  # strategies of two models, methods, dtypes
    assert all(row["right"] for row in rows)
    assert 0 < max(row["difference"] for row in rows) < 1e-3
    speeds = [(row["workload"], row["strategy"]) for row in found["speed"]]
    dense, other = ["loop", "stacked", "dense"], ["loop", "stacked"]
    assert speeds == [
        *(("W1", s) for s in dense),
        *(("W2", s) for s in other),
        *(("W3", s) for s in dense),
    ]
    assert [row["runs"] for row in found["packing"]] == [1, 8]
    for row in found["speed"] + found["packing"]:
        assert row["rounds_per_second"] > 0
    assert found["device"] == "cpu"
    assert found["utilisation"] == "not read on a CPU"


def test_what_does_not_fit_the_budget_is_left_out(bench):
    found = bench.check("cpu", quick=True, clock=bench.Clock(0.0))
    assert {row["skipped"] for rows in found.values() for row in rows} == {"out of time"}


def test_wrong_numbers_and_failures_are_told_and_fail_the_check(bench, tmp_path, monkeypatch):
    def difference(workload, algorithm, strategy, device, dtype):
        if strategy == "stacked":
            raise RuntimeError("no\nmemory")
        return {"difference": 1.0, "right": strategy == "loop"}

    monkeypatch.setattr(bench, "difference", difference)
    monkeypatch.setattr(bench, "speed", lambda *_: {})
    monkeypatch.setattr(bench, "packing", lambda *_: {})
    threads = torch.get_num_threads()
    try:
        out = tmp_path / "found.json"
        assert bench.main(["--device", "cpu", "--quick", "--output", str(out)]) == 1
    finally:
        torch.set_num_threads(threads)
    rows = json.loads(out.read_text())["correctness"]
    assert {row["error"] for row in rows if "error" in row} == {"RuntimeError: no memory"}
    assert {row["strategy"] for row in rows if row.get("right") is False} == {"dense"}


def test_rounds_are_timed_until_a_share_of_the_budget_is_spent(bench):
    asked = []

    def rounds_of(seconds):
        def time_rounds(count):
            asked.append(count)
            return [seconds] * count

        return time_rounds

    assert bench.timed(rounds_of(3.0), most=50)["rounds"] == 3  # of 12 seconds one has begun them
    assert bench.timed(rounds_of(100.0), most=50)["rounds"] == 1
    assert bench.timed(rounds_of(0.1), most=5) == {
        "rounds_per_second": pytest.approx(10.0),
        "seconds": 0.1,
        "rounds": 5,
    }
    assert asked == [1, 3, 1, 1, 1, 5]
