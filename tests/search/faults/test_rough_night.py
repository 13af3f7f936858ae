"""Workers and drivers killed, and Ctrl-C: nothing is lost, nothing is done twice."""

import time

import pytest
from night import PATIENCE, RUNS, TRIALS, descendants, kill, ray_folders, same, silent, title


def stopped_by_ctrl_c(night, command, ended):
    """Press Ctrl-C once after so many runs, as a terminal does, and check how it ends."""
    command.until(night.ended(ended), f"{ended} ended runs")
    command.until(command.workers, "a run")
    before = night.lines()
    command.interrupt()
    assert command.wait() == 130, command.printed
    after = night.lines()
    assert after >= before  # and what was out has ended well:
    assert {r["status"] for r in night.records()} == {"complete"}
    assert after < RUNS
    assert "stopping: no new run starts" in command.out
    silent(command)
    assert command.err == (
        f"fltune: interrupted; {after} ended runs are kept; "
        "go on with: python -m fltune resume night\n"
    )


def gone(pids):
    """Wait until processes have ended by themselves."""
    late = time.monotonic() + PATIENCE
    while left := [title(pid) for pid in pids if title(pid)]:
        assert time.monotonic() < late, left
        time.sleep(0.1)


@pytest.mark.slow
def test_a_worker_killed_then_ctrl_c_then_everything_killed(night, undisturbed):
    folders = ray_folders()
    first = night.search()
    kill(first.until(first.workers, "a run")[0])
    stopped_by_ctrl_c(night, first, 3)
    again = night.resume()
    again.until(night.ended(night.lines() + 3), "3 more runs")
    again.kill_all()
    assert night.lines() < TRIALS
    kept = night.lines()
    last = night.done(night.resume("--json"))
    assert f"; {kept} runs had ended before" in last.out
    same(night, undisturbed)
    assert ray_folders() <= folders  # the killed driver's is swept up by the next one


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_killed_workers_cost_nothing(night, undisturbed, count):
    command = night.search(slower=8)  # else it is over before two are seen at work again
    command.until(night.ended(4), "4 ended runs")
    for pid in command.until(lambda: command.workers()[:count], "runs"):
        kill(pid)
    command.until(night.ended(7), "7 ended runs")
    for pid in command.until(lambda: len(command.workers()) >= count and command.workers(), "runs"):
        kill(pid)
    night.done(command)
    same(night, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("ended", [0, 5, TRIALS + 1])
def test_a_killed_driver_goes_on_whenever_it_was_killed(night, undisturbed, ended):
    command = night.search()
    command.until(night.ended(ended), f"{ended} ended runs")
    command.until(command.workers, "a run")
    below = descendants(command.pid)
    command.kill()
    resumed = night.resume()  # at once: Ray's processes may still be there
    gone(below)
    night.done(resumed)
    same(night, undisturbed)


@pytest.mark.slow
def test_two_ctrl_c_leave_at_once(night, undisturbed):
    command = night.search(slower=1000)
    command.until(command.workers, "a run")
    below = descendants(command.pid)
    command.interrupt()
    command.until(lambda: "stopping" in command.out, "the first Ctrl-C to be seen")
    command.interrupt()
    assert command.wait() == 130, command.printed
    assert command.err == (
        "fltune: interrupted; 0 ended runs are kept; go on with: python -m fltune resume night\n"
    )
    gone(below)
    night.done(night.resume())
    same(night, undisturbed)


@pytest.mark.slow
def test_a_ctrl_c_before_ray_is_there_says_how_to_go_on(night, undisturbed):
    command = night.search()
    command.until(lambda: (night.state / "search.yaml").exists(), "the frozen config")
    command.interrupt()
    assert command.wait() == 130, command.printed
    assert "Traceback" not in command.err
    assert command.err.endswith("go on with: python -m fltune resume night\n")
    night.done(night.resume())
    same(night, undisturbed)
