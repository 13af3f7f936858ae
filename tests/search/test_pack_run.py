"""The worker of a pack: who is reported when, and who is not waited for."""

from types import SimpleNamespace

import pytest
from fake_workers import DRAWN, config_of, row_at

from fltune.federation.stopping import StopReason
from fltune.search.candidate import Candidate
from fltune.search.jobs import make_job
from fltune.search.pack_run import run_together


def jobs_of(count, **search):
    config = config_of({"A": DRAWN}, **search)
    made = [
        make_job(config.method("A"), "trial", Candidate(n, {"server.lr": 0.5 + n}, [40]), 40)
        for n in range(count)
    ]
    return [{"member": 2 * n, **job} for n, job in enumerate(made)], config.settings.search


def result(reason=StopReason.COMPLETED, rounds=8):
    empty = {"metrics": {}, "comm": {}, "participation": {}, "by_client": {}, "client_samples": 0}
    return SimpleNamespace(
        stop_reason=reason, rounds=rounds, message="", seconds=6.0, strategy="fake", **empty
    )


@pytest.fixture
def computation(monkeypatch):
    """Let a test say how the pack runs; return what it was given."""
    given = {}

    def use(run):
        def run_pack(experiments, *, test, on_row, on_round, on_end):
            given.update(lrs=[e.server.lr for e in experiments], test=test)

            def make(round, *places, **rows):
                for place in places:
                    on_row(place, rows.get(f"row{place}", row_at(round, 0.5)))
                return list(on_round())

            return run(make, on_end)

        monkeypatch.setattr("fltune.search.pack_run.run_pack", run_pack)
        return given

    return use


def end_all(on_end, results):
    for place, one in enumerate(results):
        on_end(place, one)
    return results


def heard(sent):
    """Members and their last rounds, message by message."""
    return [{e["member"]: e["round"] for e in message} for message in sent]


def test_what_members_report_after_a_round_goes_out_in_one_message(computation):
    def run(make, on_end):
        for round in (2, 4, 6, 8):
            assert make(round, 0, 1, 2) == []
            assert make(round + 1) == []  # a round that is not evaluated
        return end_all(on_end, [result() for _ in range(3)])

    jobs, search = jobs_of(3, scheduler="asha")
    sent = []
    given = computation(run)
    assert run_together(jobs, search, sent.append, list) == []
    assert given == {"lrs": [0.5, 1.5, 2.5], "test": False}
    assert heard(sent) == [{0: r, 2: r, 4: r} for r in (2, 4, 6, 8)]
    assert [e["finished"] for e in sent[-1]] == [True] * 3
    assert [e["seconds"] for e in sent[-1]] == [6.0] * 3


def test_confirmations_that_go_together_are_tested(computation):
    jobs, search = jobs_of(2)
    given = computation(lambda make, on_end: end_all(on_end, [result(), result()]))
    tested = [{**job, "test": True} for job in jobs]
    assert run_together(tested, search, [].append, list) == []
    assert given["test"] is True


def test_a_report_on_the_way_tells_a_members_share_of_the_time(computation, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("fltune.search.trainable.time.monotonic", lambda: now[0])

    def run(make, on_end):
        for round, now[0] in ((2, 6.0), (4, 9.0)):
            make(round, 0, 1, 2)
        return end_all(on_end, [result() for _ in range(3)])

    jobs, search = jobs_of(3, scheduler="asha")
    sent = []
    computation(run)
    run_together(jobs, search, sent.append, list)
    assert [[e["seconds"] for e in message] for message in sent[:2]] == [[2.0] * 3, [3.0] * 3]


def test_without_a_scheduler_the_rows_of_all_go_out_together(computation):
    def run(make, on_end):
        for round in (2, 4, 6, 8):
            assert make(round, 0, 1) == []
        return end_all(on_end, [result() for _ in range(2)])

    jobs, search = jobs_of(2)
    sent = []
    computation(run)
    run_together(jobs, search, sent.append, pytest.fail)
    assert heard(sent) == [{0: 8, 2: 8}]
    assert [[row["round"] for row in e["rows"]] for e in sent[0]] == [[2, 4, 6, 8]] * 2


def test_a_stopped_member_is_told_so_at_once_and_not_reported_again(computation):
    def run(make, on_end):
        assert make(2, 0, 1, 2) == [1]
        stopped = result(StopReason.STOPPED, 2)
        on_end(1, stopped)
        for round in (4, 6, 8):
            assert make(round, 0, 2) == []
        on_end(0, result())
        on_end(2, result())
        return [result(), stopped, result()]

    jobs, search = jobs_of(3, scheduler="asha")
    sent, verdicts = [], iter([[2], [], []])
    computation(run)
    run_together(jobs, search, sent.append, lambda: next(verdicts))
    assert heard(sent) == [{0: 2, 2: 2, 4: 2}, {0: 4, 4: 4}, {0: 6, 4: 6}, {0: 8, 4: 8}]


def test_one_that_diverges_is_reported_with_the_next_round_and_one_that_raised_at_the_end(
    computation,
):
    def run(make, on_end):
        make(2, 0, 1, 2, 3)
        make(4, 0, 1, 2, row1={**row_at(4, 0.5), "train/loss": float("inf")})
        on_end(1, result(StopReason.DIVERGED, 4))
        make(5)
        make(8, 0, 2)
        on_end(0, result())
        on_end(2, result())
        return [result(), None, result(), RuntimeError("bad luck")]

    jobs, search = jobs_of(4, scheduler="median")
    sent = []
    computation(run)
    run_together(jobs, search, sent.append, list)
    assert heard(sent) == [{0: 2, 2: 2, 4: 2, 6: 2}, {0: 4, 4: 4}, {2: 4}, {0: 8, 4: 8, 6: 0}]
    last = {e["member"]: (e["status"], e.get("scores")) for m in sent for e in m if "status" in e}
    assert last == {
        0: ("complete", [0.5]),
        2: ("diverged", [0.0]),
        4: ("complete", [0.5]),
        6: ("failed", None),
    }
    assert sent[-1][-1]["message"] == "RuntimeError: bad luck"


def test_members_that_cannot_go_on_together_are_returned_to_be_run_alone(computation):
    def run(make, on_end):
        assert make(2, 0, 1, 2, 3) == [1]
        on_end(3, result(StopReason.DIVERGED, 2))
        make(4, 0, 2)
        raise MemoryError("too much")

    jobs, search = jobs_of(4, scheduler="asha")
    sent = []
    computation(run)
    left = run_together(jobs, search, sent.append, lambda: [2])
    assert [job["member"] for job in left] == [0, 4]
    assert sent[-1] == [{"member": 0, "again": True}, {"member": 4, "again": True}]
