"""The bill of a search: what it counts, what it costs, what it says."""

import dataclasses
import io
import json
import time

import pytest
from rich.console import Console
from timers import OF_A_RUN, constant, here

from fltune.errors import ConfigError, DataError
from fltune.search.config import SearchConfig
from fltune.search.plan import IMPORTS, RUN_SECONDS, START_SECONDS, plan, print_bill
from fltune.search.preparation import check_data

RAW = {
    "experiment": {
        "data": {"name": "digits", "clients": 20},
        "model": {"name": "mlp", "hidden": [8]},
        "participation": {"kind": "uniform", "per_round": 4},
        "client": {"lr": 0.1, "steps": 3, "batch_size": 7},
        "rounds": 60,
        "eval_every": 20,
    },
    "methods": {
        "Grid": {"space": {"client.lr": {"grid": [0.1, 0.2, 0.3]}}},
        "Drawn": {"space": {"client.lr": {"loguniform": [0.1, 0.3]}}, "rounds": 30},
        "Staged": {
            "server": {
                "name": "multistage",
                "stages": 2,
                "betas": [0.5, 0.9],
                "stage_ends": [20, 60],
            },
            "space": {"server.nu": {"grid": [0.5, 0.9]}},
        },
    },
    "search": {"trials": 5, "confirm_seeds": 2},
}


@pytest.fixture(scope="module")
def bill():
    return plan(SearchConfig.parse(RAW, "my.yaml"), here)


@pytest.mark.parametrize(
    ("method", "exact", "trials", "rounds_each"),
    [("Grid", True, 3, 60), ("Drawn", False, 5, 30), ("Staged", True, 2, 60)],
)
def test_the_bill_counts_trials_rounds_and_samples(bill, method, exact, trials, rounds_each):
    entry = bill.methods[method]
    rounds = (trials + 2) * rounds_each
    assert (entry.exact, entry.trials, entry.rounds) == (exact, trials, rounds)
    assert entry.client_samples == rounds * 4 * 3 * 7  # cohort, steps, batch
    assert 0 < entry.seconds < 60


def test_the_bill_of_the_whole_search(bill):
    work = sum(entry.seconds for entry in bill.methods.values())
    assert bill.wall_seconds > work / bill.concurrent
    assert bill.memory_bytes > 2**26
    assert bill.disk_bytes > 0
    assert json.loads(json.dumps(bill.as_json(), allow_nan=False))["methods"]["Grid"]["trials"] == 3


def test_one_trial_at_a_time_makes_it_longer():
    raw = {**RAW, "methods": {"Grid": RAW["methods"]["Grid"]}}
    search = {**RAW["search"], "pack": 1}
    one, two = (
        plan(SearchConfig.parse({**raw, "search": {**search, "concurrent": n}}), constant)
        for n in (1, None)
    )
    assert (one.concurrent, one.methods) == (1, two.methods)
    assert one.concurrent == two.concurrent or one.wall_seconds > two.wall_seconds


def test_a_long_run_is_not_run_to_be_priced():
    raw = {**RAW, "experiment": {**RAW["experiment"], "rounds": 200_000}}
    started = time.perf_counter()
    bill = plan(SearchConfig.parse(raw, methods=["Grid"]), here)
    assert time.perf_counter() - started < 60  # an hour otherwise
    assert bill.methods["Grid"].rounds == 5 * 200_000


def test_the_printed_bill_names_every_method(bill):
    console = Console(file=io.StringIO(), width=100)
    print_bill(bill, SearchConfig.parse(RAW, "my.yaml"), console)
    text = console.file.getvalue()
    for part in ("my.yaml: the bill", "Grid", "3 (exact grid)", "Drawn", "Staged", "210"):
        assert part in text
    assert "2 confirmation seeds, included above" in " ".join(text.split())


def test_a_plan_says_where_trials_run_and_times_them_there(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)  # Lightning would find none
    config = SearchConfig.parse(RAW, "my.yaml", methods=["Grid"])
    asked = []

    def timer(questions, processes, cpus):
        asked.extend(questions)
        return constant(questions, processes, cpus)

    bill = plan(config, timer)
    assert bill.device == "cpu"
    assert {q.experiment.device for q in asked} == {"cpu"}
    console = Console(file=io.StringIO(), width=100)
    print_bill(bill, config, console)
    assert f"{bill.concurrent} trials at a time, device cpu: about" in console.file.getvalue()


def test_a_plan_fails_as_the_search_would():
    raw = {**RAW, "experiment": {**RAW["experiment"], "data": {"name": "digits", "clients": 5000}}}
    with pytest.raises(DataError, match="5000"):
        plan(SearchConfig.parse(raw), constant)
    raw = {**RAW, "resources": {"cpus": 100_000}}
    with pytest.raises(ConfigError, match=r"resources\.cpus: found 100000 per trial; there are"):
        plan(SearchConfig.parse(raw), constant)


def test_a_model_that_some_values_do_not_make_is_said_with_its_method():
    odd = {"space": {"model.hidden": {"choice": [[4], [0]]}}}
    config = SearchConfig.parse({**RAW, "methods": {**RAW["methods"], "Odd": odd}})
    with pytest.raises(ConfigError, match=r"methods\.Odd\.model: hidden = \[0\]: every size"):
        plan(config, constant)


def test_a_trace_is_found_by_workers_whose_folder_is_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "who.json").write_text("[[0, 19]]")
    trace = {"kind": "trace", "file": "who.json"}
    config = SearchConfig.parse(
        {**RAW, "experiment": {**RAW["experiment"], "participation": trace}}, "my.yaml"
    )
    check_data(config)
    for method in config.methods.values():
        assert method.experiment({}).participation.file == str(tmp_path / "who.json")


@pytest.mark.parametrize("search", [{}, {"seeds": 3, "scheduler": "asha", "confirm_top": 2}])
def test_the_bill_of_a_search_of_nothing_is_that_of_its_confirmations(search):
    raw = {**RAW, "methods": {"A": {"space": {}}}, "search": {"confirm_seeds": 3, **search}}
    config = SearchConfig.parse(raw, "my.yaml")
    bill = plan(config, constant)
    a = bill.methods["A"]
    assert (a.trials, a.runs, a.rounds) == (0, 3, 3 * 60)
    assert a.least_seconds == a.likely_seconds == a.seconds > 0
    assert bill.wall_range[0] <= bill.wall_seconds <= bill.wall_range[1]
    out = io.StringIO()
    print_bill(bill, config, Console(file=out, width=120))
    assert "Nothing is tuned: each method is run on 3 confirmation seeds." in out.getvalue()
    assert "exact grid" not in out.getvalue()


def test_seeds_inheritance_and_caps_are_in_the_bill():
    raw = {
        **RAW,
        "methods": {
            "A": RAW["methods"]["Grid"],
            "B": {"space": {"client.lr": {"grid": [0.1, 0.2]}}},
        },
        "tune": {"method": "A", "share": ["client.lr"]},
        "search": {
            "trials": 5,
            "seeds": 2,
            "confirm_seeds": 3,
            "confirm_top": 2,
            "max_seconds": 3600,
            "scheduler": "asha",
            "grace": 20,
        },
    }
    config = SearchConfig.parse(raw, "my.yaml")
    bill = plan(config, constant)
    a, b = bill.methods["A"], bill.methods["B"]
    assert (a.trials, a.runs, a.inherits) == (3, 3 * 2 + 3 * 2, "")
    assert (b.trials, b.runs, b.inherits) == (0, 3, "A")  # its only value is taken over
    assert a.rounds == a.runs * 60
    assert a.least_seconds < a.likely_seconds < a.seconds
    assert b.least_seconds == pytest.approx(b.seconds)
    assert b.likely_seconds == pytest.approx(b.seconds)
    low, high = bill.wall_range
    assert low < bill.wall_seconds < high
    assert bill.caps == {"max_seconds": 3600.0}
    console = Console(file=io.StringIO(), width=80)
    print_bill(bill, config, console)
    text = " ".join(console.file.getvalue().split())
    for part in (
        "takes over",
        "on 2 search seeds",
        "best 2 on 3 confirmation seeds",
        "max_seconds",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("machine", "said"), [(2**50, "it fits"), (2**20, "does NOT fit"), (None, "")]
)
def test_the_bill_says_whether_the_memory_is_enough(bill, machine, said):
    changed = dataclasses.replace(bill, machine_bytes=machine)
    assert changed.fits == (machine != 2**20)
    console = Console(file=io.StringIO(), width=100)
    print_bill(changed, SearchConfig.parse(RAW, "my.yaml"), console)
    text = console.file.getvalue()
    assert said in " ".join(text.split())
    assert ("GiB there are" in " ".join(text.split())) == bool(said)


def test_a_plan_without_the_source_of_values_is_refused():
    raw = {**RAW, "tune": {"method": "Drawn", "share": ["client.lr"]}}
    with pytest.raises(ConfigError, match="add --method 'Drawn'"):
        plan(SearchConfig.parse(raw, methods=["Grid"]), constant)


def test_what_a_search_takes_is_what_its_runs_take():
    methods = {"A": {"space": {"client.lr": {"grid": [0.1, 0.2]}}}}
    search = {"confirm_seeds": 3, "concurrent": 1, "pack": 1}
    bill = plan(SearchConfig.parse({**RAW, "methods": methods, "search": search}), constant)
    trial = RUN_SECONDS + OF_A_RUN.run(60, 20)
    final = RUN_SECONDS + OF_A_RUN.run(60, 20, test=True)
    assert OF_A_RUN.run(60, 20) == 1 + 60 * 0.25 + 3 * 0.5
    assert bill.methods["A"].seconds == pytest.approx(2 * trial + 3 * final)
    start = START_SECONDS + IMPORTS * 4.0
    assert bill.wall_seconds == pytest.approx(start + 2 * trial + 3 * final)


def test_values_that_change_the_work_of_a_round_are_timed_each():
    steps = {"space": {"client.steps": {"grid": [1, 20]}}}
    rates = {"space": {"client.lr": {"grid": [0.1, 0.2]}}}
    search = {"confirm_seeds": 0, "pack": 1}

    def timer(questions, processes, cpus):
        timed = constant(questions, processes, cpus)
        seconds = [q.experiment.client.steps / 100 for q in questions]
        probes = [dataclasses.replace(OF_A_RUN, round=one) for one in seconds]
        return dataclasses.replace(timed, probes=probes)

    raw = {**RAW, "methods": {"Steps": steps, "Rates": rates}, "search": search}
    bill = plan(SearchConfig.parse(raw), timer)
    assert bill.timed == 3
    steps, rates = bill.methods["Steps"], bill.methods["Rates"]
    assert steps.seconds - rates.seconds == pytest.approx(60 * (0.01 + 0.2 - 2 * 0.03))
    assert steps.client_samples < 60 * 4 * 7 * (1 + 20)  # some of the batches are partial
    assert rates.client_samples == 2 * 60 * 4 * 7 * 3


def test_a_packed_search_is_timed_in_packs_and_says_so():
    raw = {**RAW, "search": {**RAW["search"], "pack": 4}}
    packed = plan(SearchConfig.parse(raw), here)
    assert {name: b.pack for name, b in packed.methods.items()} == {
        "Grid": 3,
        "Drawn": 4,
        "Staged": 2,
    }
    assert all(0 < b.least_seconds <= b.seconds < 60 for b in packed.methods.values())
    out = io.StringIO()
    print_bill(packed, SearchConfig.parse(raw), Console(file=out, width=200))
    assert "go as one computation in a worker, timed so: 3 of Grid, 4 of Drawn" in out.getvalue()
