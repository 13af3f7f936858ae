"""The order of a method's work, and what an extension adds to it."""

import json
import math

import pytest
from fake_workers import DRAWN, config_of, reports_of, well

from fltune.search.lane import Lane
from fltune.search.record import CONFIRMATION, TRIAL, TrialRecord

TWO = {"space": {"server.lr": {"grid": [0.5, 1.0, 2.0]}}}


def lane_of(method, journal=None, **search):
    config = config_of({"A": method}, **search)
    decided = [] if journal is None else journal
    return Lane(config.method("A"), config.settings.search, decided.append)


def run_of(job, status="complete", score=0.5):
    """How a job ended."""
    scores = [score] if status != "failed" else []
    rows = [{"round": 8.0, "val/accuracy": score}] if scores else []
    record = TrialRecord("A", job["kind"], job["number"], job["searched"], job["seed"])
    record.status, record.scores, record.rows, record.message = status, scores, rows, status
    return record


def work(lane, end, seen=None):
    """Run a lane's jobs one after the other to the end; return them."""
    jobs = [] if seen is None else seen
    while isinstance(job := lane.next(), dict):
        jobs.append(job)
        lane.ended(run_of(job, *end(job)))
    return jobs


def by_lr(job):
    return "complete", 1 / (1 + abs(math.log(job["searched"]["server.lr"])))


def restored(lane, journal, runs, **search):
    """The lane of the next process, from what the files keep."""
    again = lane_of(lane, **search) if isinstance(lane, dict) else lane
    plain = json.loads(json.dumps(journal))
    again.restore(plain, [TrialRecord.of_json(json.loads(json.dumps(r.as_json()))) for r in runs])
    return again


def asked(jobs):
    return [(job["kind"], job["number"], job["seed"]) for job in jobs]


def test_each_config_once_and_then_the_winner_on_fresh_seeds():
    lane = lane_of(TWO)
    jobs = [lane.next() for _ in range(3)]
    assert [job["values"] for job in jobs] == [{"server.lr": r, "seed": 40} for r in (0.5, 1, 2)]
    assert not any(job["test"] for job in jobs)
    assert lane.next() is None  # the winner is not known yet
    assert not lane.settled
    lane.ended(run_of(jobs[1], "complete", 0.4))
    lane.ended(run_of(jobs[0], "diverged", 0.0))
    assert lane.next() is None
    lane.ended(run_of(jobs[2], "failed"))
    confirmations = [lane.next(), lane.next()]
    assert lane.settled
    assert [job["values"] for job in confirmations] == [
        {"server.lr": 1.0, "seed": 41},
        {"server.lr": 1.0, "seed": 42},
    ]
    assert all(job["test"] for job in confirmations)
    assert lane.next() == "done"
    lane.ended(run_of(confirmations[0], "complete", 0.9))
    assert (lane.done, lane.planned, lane.planned_confirmations) == (3, 3, 2)


def test_methods_of_the_same_space_are_tried_at_points_of_their_own():
    config = config_of({"A": DRAWN, "B": DRAWN})
    lanes = [Lane(config.method(m), config.settings.search, [].append) for m in ("A", "B")]
    one, other = (lane.next()["searched"] for lane in lanes)
    assert one.keys() == other.keys()
    assert one != other


@pytest.mark.parametrize("status", ["diverged", "failed", "pruned"])
def test_without_a_complete_config_nothing_is_confirmed(status):
    jobs = work(lane_of(TWO), lambda job: (status, 0.1))
    assert asked(jobs) == [(TRIAL, n, 40) for n in range(3)]


def test_a_config_that_promises_something_is_run_on_every_search_seed():
    lane = lane_of(TWO, seeds=3, trials=3)
    jobs = work(lane, lambda job: ("complete", 0.5 + job["number"] / 10))
    assert asked(jobs)[:9] == [(TRIAL, n, 40 + s) for n in range(3) for s in range(3)]
    assert asked(jobs)[9:] == [(CONFIRMATION, 2, 43), (CONFIRMATION, 2, 44)]  # seeds not seen


def test_a_config_worse_than_the_best_one_on_its_worst_seed_is_rejected_and_never_wins():
    journal = []
    scores = {(0, 40): 0.6, (0, 41): 0.5, (1, 40): 0.49, (2, 40): 0.5, (2, 41): 0.9}
    lane = lane_of(TWO, journal, seeds=2)
    jobs = work(lane, lambda job: ("complete", scores.get((job["number"], job["seed"]), 0.5)))
    assert asked(jobs)[:5] == [(TRIAL, n, s) for n, s in scores]
    (decision,) = [entry for entry in journal if entry["event"] == "rejected"]
    assert decision["number"] == 1
    assert decision["reason"] == (
        "rejected after 1 of 2 seeds: 0.49 is worse than trial 0 on its worst seed, 0.5"
    )
    assert [c.number for c in lane.front] == [2, 0]


def test_one_bad_seed_spares_a_config_the_others():
    ends = {(0, 41): "diverged"}
    jobs = work(
        lane_of(TWO, seeds=3), lambda job: (ends.get((job["number"], job["seed"]), "complete"), 0.5)
    )
    assert [seed for kind, number, seed in asked(jobs) if number == 0] == [40, 41]


def test_a_deterministic_lane_runs_all_seeds_because_which_had_begun_depends_on_the_workers():
    ends = {(0, 41): "diverged"}
    lane = lane_of(TWO, seeds=3, deterministic=True)
    jobs = work(lane, lambda job: (ends.get((job["number"], job["seed"]), "complete"), 0.5))
    assert [seed for kind, number, seed in asked(jobs) if number == 0] == [40, 41, 42]
    assert lane.candidates[0].status == "diverged"


def test_a_deterministic_lane_learns_from_a_batch_when_all_of_it_has_ended():
    journal = []
    lane = lane_of(DRAWN, journal, deterministic=True, batch=3)
    jobs = [lane.next() for _ in range(3)]
    assert lane.next() is None
    for job in reversed(jobs[1:]):
        lane.ended(run_of(job))
    assert lane.next() is None
    lane.ended(run_of(jobs[0]))
    assert lane.next()["number"] == 3
    assert [e["numbers"] for e in journal if e["event"] == "batch"] == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("metric", "direction", "worst"), [("val/loss", 1, 1e4), ("val/accuracy", 2, 0.0)]
)
def test_the_sampler_is_told_where_to_start_what_is_better_and_what_is_worst(
    metric, direction, worst
):
    lane = lane_of({**DRAWN, "points": [{"server.lr": 3.0}]}, metric=metric)
    job = lane.next()
    assert job["searched"] == {"server.lr": 3.0}
    lost = run_of(job, "diverged")
    lost.rows = []
    lane.ended(lost)
    study = lane.proposer.study()
    assert study.direction == direction  # of Optuna's: 1 is to minimise
    assert study.trials[0].value == worst


def test_what_a_config_breaks_is_told_to_the_sampler():
    bound = {"comm/up_bits": {"max": 100}}
    for constraints, told in ((bound, {"0": 0.5}), ({}, {})):
        lane = lane_of(DRAWN, constraints=constraints)
        run = run_of(lane.next())
        run.rows[0]["comm/up_bits"] = 150
        run.violations = [0.5] if constraints else []
        lane.ended(run)
        (trial,) = lane.proposer.study().trials
        assert trial.constraints == told


@pytest.mark.parametrize("resumed", [False, True])
def test_a_trial_that_diverged_is_last_at_the_rungs_that_it_did_not_come_to(resumed):
    journal, asha = [], {"scheduler": "asha", "grace": 2, "reduction": 2.0}
    lane = lane_of(DRAWN, journal, **asha)
    lost = run_of(lane.next(), "diverged", 0.0)
    lost.rows = []
    if resumed:
        lane = restored(DRAWN, journal, [lost], **asha)
    else:
        lane.ended(lost)
    assert not lane.rungs.stop(1, 2, 0.10)
    assert not lane.rungs.stop(2, 2, 0.05)  # the second of three; of two it would be the worse


def test_several_winners_are_confirmed_and_the_best_on_fresh_seeds_is_reported():
    lane = lane_of(TWO, confirm_top=2)
    scores = {TRIAL: [0.7, 0.8, 0.1], CONFIRMATION: [0.75, 0.7, 0.9]}
    jobs = work(lane, lambda job: ("complete", scores[job["kind"]][job["number"]]))
    assert asked(jobs)[3:] == [(CONFIRMATION, n, s) for n in (1, 0) for s in (41, 42)]
    assert [c.number for c in lane.winners] == [1, 0]
    assert lane.chosen.number == 0
    assert [(r.number, r.seed) for r in lane.reported] == [(0, 41), (0, 42)]
    assert lane.planned_confirmations == 4


def test_of_several_winners_the_smallest_on_fresh_seeds_is_reported_where_that_is_best():
    lane = lane_of(TWO, confirm_top=2, mode="min")
    scores = {TRIAL: [0.3, 0.2, 0.9], CONFIRMATION: [0.25, 0.3, 0.1]}
    jobs = work(lane, lambda job: ("complete", scores[job["kind"]][job["number"]]))
    assert asked(jobs)[3:] == [(CONFIRMATION, n, s) for n in (1, 0) for s in (41, 42)]
    assert lane.chosen.number == 0


def test_a_winner_that_fails_on_a_fresh_seed_has_the_worst_score_there():
    lane = lane_of(TWO, confirm_top=2)
    scores = {TRIAL: [0.7, 0.8, 0.1], CONFIRMATION: [0.75, 0.9, 0.9]}

    def end(job):
        if (job["kind"], job["number"], job["seed"]) == (CONFIRMATION, 1, 42):
            return ("failed",)
        return "complete", scores[job["kind"]][job["number"]]

    work(lane, end)
    assert [c.number for c in lane.winners] == [1, 0]
    assert lane.chosen.number == 0  # 0.75 against the mean of 0.9 and 0


def test_a_space_is_widened_where_its_winner_is_on_an_edge():
    journal = []
    lane = lane_of({"space": {"server.lr": {"grid": [0.25, 0.5]}}}, journal, extend_edges=2)
    jobs = work(lane, by_lr)
    tried = [job["searched"]["server.lr"] for job in jobs if job["kind"] == TRIAL]
    assert tried == [0.25, 0.5, 1.0, 2.0, 4.0]  # the second time because 1 was an edge
    assert [e["entries"] for e in journal if e["event"] == "widened"] == [
        {"server.lr": {"grid": [0.25, 0.5, 1.0]}},
        {"server.lr": {"grid": [0.25, 0.5, 1.0, 2.0, 4.0]}},
    ]
    assert lane.chosen.values == {"server.lr": 1.0}


def test_a_space_that_was_set_by_hand_after_it_was_widened_stays():
    journal, runs = [], []
    narrow = {"space": {"server.lr": {"grid": [0.25, 0.5]}}}
    lane = lane_of(narrow, journal, extend_edges=1)
    work(lane, by_lr)
    runs = [r for c in lane.candidates.values() for r in c.runs]
    same = restored(narrow, journal, runs, extend_edges=1)
    assert same.method.space.to_yaml()["server.lr"] == {"grid": [0.25, 0.5, 1.0]}
    by_hand = {"space": {"server.lr": {"grid": [0.5, 1.0, 3.0]}}}
    again = restored(by_hand, journal, runs, extend_edges=1)
    assert [job["searched"]["server.lr"] for job in work(again, by_lr)][:1] == [3.0]


# caps


def test_a_closed_lane_starts_no_trial_but_confirms_what_it_has():
    lane = lane_of(TWO)
    first = lane.next()
    second = lane.next()
    lane.closed = True
    assert lane.next() is None  # what is out may still win
    lane.ended(run_of(first, "complete", 0.5))
    lane.ended(run_of(second, "complete", 0.6))
    assert asked([lane.next(), lane.next()]) == [(CONFIRMATION, 1, 41), (CONFIRMATION, 1, 42)]
    assert lane.next() == "done"


def test_a_closed_lane_leaves_seeds_out_unless_nothing_would_win():
    for has_winner, seeds in ((False, [40, 41]), (True, [40])):
        lane = lane_of(TWO, seeds=2)
        if has_winner:
            for _ in range(2):
                lane.ended(run_of(lane.next(), "complete", 0.5))
        first = lane.next()
        lane.ended(run_of(first, "complete", 0.6))
        lane.closed = True
        jobs = [first, *work(lane, lambda job: ("complete", 0.6))]
        own = [(k, s) for k, n, s in asked(jobs) if n == first["number"]]
        assert [s for kind, s in own if kind == TRIAL] == seeds
        assert any(kind == CONFIRMATION for kind, _, _ in asked(jobs))


# faults


def test_a_point_at_which_a_tie_has_no_value_fails_its_trial_and_nothing_else():
    space = {
        "client.batch_size": {"int": [1, 3]},
        "server.lr": {"tied": "1 / (client.batch_size - 2) ** 2"},
    }
    lane = lane_of({"space": space}, trials=3)
    jobs = {job["searched"]["client.batch_size"]: job for job in (lane.next() for _ in range(3))}
    assert {size: job["fault"][:31] for size, job in jobs.items()} == {
        1: "",
        2: "server.lr: 1 / (client.batch_si",
        3: "",
    }
    assert jobs[1]["values"] == {"client.batch_size": 1, "server.lr": 1.0, "seed": 40}


def test_a_config_whose_proposal_was_lost_is_known_from_its_run():
    lost = TrialRecord("A", TRIAL, 4, {"server.lr": 1.0}, 40, "complete", [0.9])
    lane = restored(TWO, [], [lost])
    jobs = work(lane, by_lr)
    assert asked(jobs)[:2] == [(TRIAL, 5, 40), (TRIAL, 6, 40)]  # numbers are not given twice
    assert [job["searched"]["server.lr"] for job in jobs[:2]] == [0.5, 2.0]
    assert lane.chosen.number == 4


def test_the_only_config_is_confirmed_without_a_trial():
    for space in ({}, {"server.lr": {"grid": [2.0]}}):
        journal = []
        lane = lane_of({"space": space}, journal, seeds=2)
        assert (lane.planned, lane.planned_confirmations) == (0, 2)
        jobs = work(lane, lambda job: ("complete", 0.5))
        assert asked(jobs) == [(CONFIRMATION, 0, 42), (CONFIRMATION, 0, 43)]
        assert (lane.planned, lane.done, lane.done_confirmations, lane.tried) == (0, 0, 2, [])
        assert lane.chosen.values == dict.fromkeys(space, 2.0)
        assert [run.seed for run in lane.reported] == [42, 43]
        again = restored({"space": space}, journal, lane.records, seeds=2)
        assert again.next() == "done"
        assert [run.seed for run in again.reported] == [42, 43]


@pytest.mark.parametrize(
    "search",
    [
        {"confirm_seeds": 0},
        {"extend_edges": 1},
        {"constraints": {"comm/up_bits": {"max": 1e9}}},
        {"objectives": ["val/accuracy", {"metric": "comm/up_bits", "mode": "min"}]},
    ],
    ids=lambda search: next(iter(search)),
)
def test_the_only_config_is_run_where_a_trial_says_what_confirmations_do_not(search):
    lane = lane_of({"space": {"server.lr": {"grid": [2.0]}}}, **search)
    assert (lane.planned, lane.next()["kind"]) == (1, TRIAL)


def test_an_only_config_that_diverges_on_every_fresh_seed_is_still_what_is_reported():
    lane = lane_of({"space": {}})
    work(lane, lambda job: ("diverged", 0.0))
    assert [run.status for run in lane.reported] == ["diverged", "diverged"]


# more than was asked for at first


def done(method, **search):
    journal = []
    lane = lane_of(method, journal, **search)
    work(lane, lambda job: ("complete", by_lr(job)[1] + (job["seed"] - 40) / 1000))
    return journal, [
        *(r for c in lane.candidates.values() for r in c.runs),
        *lane.confirmation.runs,
    ]


def test_more_trials_go_on_from_what_is_known():
    journal, runs = done(DRAWN, trials=4)
    lane = restored(DRAWN, journal, runs, trials=6)
    jobs = work(lane, by_lr)
    assert asked(jobs)[:2] == [(TRIAL, 4, 40), (TRIAL, 5, 40)]
    assert lane.next() == "done"


def test_an_only_config_is_run_once_an_extension_adds_others():
    one = {"space": {"server.lr": {"grid": [1.0]}}}
    journal, runs = done(one)
    assert {run.kind for run in runs} == {CONFIRMATION}
    lane = restored(TWO, journal, runs)
    jobs = work(lane, by_lr)
    assert asked(jobs) == [(TRIAL, 0, 40), (TRIAL, 1, 40), (TRIAL, 2, 40)]
    assert lane.chosen.number == 0  # and is confirmed already


def test_a_trial_of_an_only_config_that_there_is_counts():
    one = {"space": {}}
    lane = lane_of(one, confirm_seeds=0)
    (job,) = work(lane, lambda job: ("complete", 0.5))
    again = restored(one, [], [run_of(job)])
    assert (again.planned, again.done, len(again.tried)) == (1, 1, 1)
    assert {kind for kind, *_ in asked(work(again, lambda job: ("complete", 0.5)))} == {
        CONFIRMATION
    }


def test_a_finished_lane_has_nothing_left_to_do():
    journal, runs = done(TWO, seeds=2, confirm_top=2)
    lane = restored(TWO, journal, runs, seeds=2, confirm_top=2)
    assert lane.next() == "done"
    assert lane.settled


def test_more_seeds_are_run_for_the_best_first_and_the_hopeless_are_spared_them():
    journal, runs = done(TWO)
    lane = restored(TWO, journal, runs, seeds=2)
    jobs = work(lane, lambda job: ("complete", 0.95))
    assert asked(jobs)[0] == (TRIAL, 1, 41)
    assert [c.rejected != "" for c in lane.candidates.values()] == [True, False, True]
    # 41 and 42 were fresh once; the search has seen 41 by now
    assert asked(jobs)[1:] == [(CONFIRMATION, 1, 43)]
    assert [r.seed for r in lane.reported] == [42, 43]


def test_a_bigger_extension_than_a_batch_is_learned_from_before_it_goes_on():
    journal, runs = done(DRAWN, deterministic=True, batch=2)
    lane = restored(DRAWN, journal, runs, deterministic=True, batch=2, seeds=2, trials=7)
    out = []
    while isinstance(job := lane.next(), dict):
        out.append(job)
    assert {job["number"] for job in out} == set(range(6))
    for job in out:
        lane.ended(run_of(job))
    assert lane.next()["number"] == 6


def test_the_same_point_and_seed_is_the_same_run():
    config = config_of({"A": TWO})
    job = Lane(config.method("A"), config.settings.search, [].append).next()
    assert reports_of(job, config.settings.search, well) == reports_of(
        job, config.settings.search, well
    )
