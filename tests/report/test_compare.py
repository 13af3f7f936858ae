import csv
import io
import json
import math
import subprocess
import sys

import pytest
from fabricated import LR, MIB, NASTY, confirmation, curve, trial
from rich.console import Console

from fltune.cli import main
from fltune.errors import ConfigError
from fltune.report.compare import Reach, bits_text, print_report
from fltune.report.description import outcome
from fltune.report.export import COLUMNS, as_csv, as_latex, escape_latex, write_files
from fltune.report.page import as_html
from fltune.search.objective import Objective

P = 1 - math.sqrt(12 / 14)  # of t = -2 sqrt(3) at 2 degrees of freedom, see two_methods
HALF = 4.302652729911275 * 0.02 / math.sqrt(3)  # half the 95% interval of 0.90, 0.92, 0.94


def rows_of(report):
    return {row["method"]: row for row in csv.DictReader(io.StringIO(as_csv(report)))}


def imports_of(program):
    """Which of the slow packages a program has imported at its end."""
    slow = "{'ray', 'optuna', 'mlflow', 'plotly', 'lightning'}"
    last = f"import sys; print(*sorted({slow} & set(sys.modules)))"
    argv = [sys.executable, "-c", f"{program}\n{last}"]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()[-1]


def test_the_table_in_the_terminal_needs_no_ray_optuna_mlflow_or_plotly(two_methods, tmp_path):
    argv = ["compare", "made", "--set", f"tracking.root={tmp_path}"]
    program = f"from fltune.cli import app; app({argv}, standalone_mode=False)"
    assert imports_of(program) == "lightning"  # the typed config's servers are its callbacks


def test_a_list_of_algorithms_needs_no_lightning():
    assert imports_of("from fltune.report.listing import listing; listing('algorithms')") == ""


def test_numbers_are_those_worked_out_by_hand(two_methods):
    best, other = two_methods.rows
    assert [(r.rank, r.name) for r in two_methods.rows] == [(1, "FedAvg"), (2, NASTY)]
    assert best.summary.test.mean == pytest.approx(0.92)
    assert best.summary.test.high == pytest.approx(0.92 + HALF)
    assert best.summary.against_best is None
    assert other.summary.against_best.difference.mean == pytest.approx(-0.02)
    assert other.summary.against_best.p == pytest.approx(P)
    # val/accuracy reaches 0.8 after rounds 4, 2 and never
    assert best.reach == Reach(3.0, 2, 3)
    assert other.reach == Reach(None, 0, 3)
    assert (best.summary.bits_up, best.summary.bits_down) == (2 * MIB, 4 * MIB)
    assert best.summary.client_samples == 2010
    assert (other.summary.pruned, best.summary.diverged) == (1, 1)
    assert other.summary.edges == {"server.lr": "highest"}
    assert two_methods.headline == "test/accuracy"
    assert not best.missing


def test_stages_are_shown_as_lists_not_as_the_draws_that_they_are_made_of(make_report):
    stages = {"server": {"name": "multistage", "stages": 2}, "space": {}}
    stages["space"] = {"server.lr": {"grid": [1.0]}, "server.stage_ends": {"stages": "free"}}
    drawn = {"server.lr": 1.0, "server.stage_ends.1": 0.4}
    report = make_report({"Stages": stages}, [trial("Stages", 0, drawn, 0.9)])
    (row,) = report.rows
    assert row.summary.best == drawn
    assert row.summary.shown == {"server.lr": 1.0, "server.stage_ends": [2, 4]}
    console = Console(file=io.StringIO(), width=120)
    print_report(report, console)
    assert "server.stage_ends=[2, 4]" in console.file.getvalue()


def test_the_csv_has_its_columns_and_full_numbers(two_methods):
    text = as_csv(two_methods)
    assert tuple(next(csv.reader(io.StringIO(text)))) == COLUMNS
    best, other = rows_of(two_methods)["FedAvg"], rows_of(two_methods)[NASTY]
    assert json.loads(best["best"]) == {"server.lr": 1.0, "client.lr": 0.1}
    assert float(best["test_mean"]) == pytest.approx(0.92)
    assert float(best["test_low"]) == pytest.approx(0.92 - HALF)
    assert (best["difference"], best["p"]) == ("", "")
    assert float(other["p"]) == pytest.approx(P)
    assert (best["rounds_to_target"], best["reached"]) == ("3.0", "2")
    assert (other["rounds_to_target"], other["reached"]) == ("", "0")
    assert (best["uplink_bits"], best["downlink_bits"]) == (str(2.0 * MIB), str(4.0 * MIB))
    counts = [best[k] for k in ("trials", "pruned", "diverged", "failed", "client_samples")]
    assert counts == ["3", "0", "1", "0", "2010"]
    assert other["edges"] == "server.lr highest"


def test_every_csv_column_is_explained():
    from fltune.report import export

    assert all(column in export.__doc__ for column in COLUMNS)


def test_latex_is_booktabs_with_the_same_numbers(two_methods):
    text = as_latex(two_methods)
    assert text.count("rule\n") == 3
    assert (
        rf"\textbf{{FedAvg}} & server.lr=1, client.lr=0.1 & $0.9000$ & $0.9200 \pm {HALF:.4f}$"
        in text
    )
    assert rf"$-0.0200\ (p = {P:.3f})$" in text
    assert r"Ours\textless{}/script\textgreater{}" in text
    widths = {line.count(" & ") for line in text.splitlines() if line.endswith(r"\\")}
    assert widths == {6}


def test_latex_prints_every_special_letter():
    assert escape_latex("a_b & 5% #1 $x^2 ~ {y} \\z") == (
        r"a\_b \& 5\% \#1 \$x\textasciicircum{}2 \textasciitilde{} \{y\} \textbackslash{}z"
    )


def test_a_latex_row_is_no_argument_of_the_one_before_it(make_report):
    methods = {name: {"space": {}} for name in ("[a] new", "*", "A")}
    values = dict.fromkeys(methods, 0.5) | {"A": 0.9}
    records = [trial(name, 0, {}, 0.5) for name in methods]
    records += [
        confirmation(name, 0, s, {}, v, curve(v)) for name, v in values.items() for s in (1, 2, 3)
    ]
    starts = [line[:4] for line in as_latex(make_report(methods, records)).splitlines()]
    assert {"{}[a", "{}* "} <= set(starts)
    assert escape_latex("a|b") == r"a\textbar{}b"


def test_json_is_the_searchs_own_and_what_the_comparison_adds(two_methods):
    plain = json.loads(json.dumps(two_methods.as_json(), allow_nan=False))
    assert {"name", "tracking_uri", "experiment", "methods"} <= set(plain)
    entry = plain["methods"]["FedAvg"]
    promised = {"best", "val", "test", "trials", "pruned", "diverged", "edges", "client_samples"}
    assert promised <= set(entry)
    assert entry["rank"] == 1
    assert entry["rounds_to_target"] == {"rounds": 3.0, "reached": 2, "seeds": 3}
    assert plain["target"] == "rounds to val/accuracy >= 0.8"
    assert "--set server.lr=1.0" in entry["command"]
    assert "secret" not in json.dumps(plain)


def test_an_interrupted_search_says_what_is_missing(in_pieces):
    found = {row.name: row.missing for row in in_pieces.rows}
    assert found["Lost"] == ""  # there is no winner to confirm
    assert found["Empty"] == "3 of 3 trials still to come"
    assert found["Under way"] == ("2 of 3 trials and 3 of 3 confirmation runs still to come")
    text = "\n".join(in_pieces.warnings)
    assert "Empty: 3 of 3 trials still to come" in text
    assert "python -m fltune resume made" in text
    assert in_pieces.headline == "test/accuracy"
    assert rows_of(in_pieces)["Lost"]["diverged"] == "3"
    assert rows_of(in_pieces)["Empty"]["test_mean"] == ""
    assert as_latex(in_pieces).count("--") > 4
    json.dumps(in_pieces.as_json(), allow_nan=False)


def test_trials_left_out_by_a_spent_budget_are_not_missing(make_report):
    one = {"server.lr": 1.0, "client.lr": 0.1}
    records = [trial("A", 0, one, 0.5)]
    records += [confirmation("A", 0, s, one, 0.5, curve(0.5)) for s in (1, 2)]
    report = make_report({"A": {"space": LR}}, records, {"max_client_samples": 500})
    assert report.rows[0].missing == "1 of 3 confirmation runs still to come"


def test_no_trial_is_still_to_come_where_the_budget_is_spent(make_report):
    one, begun = {"server.lr": 1.0, "client.lr": 0.1}, {"server.lr": 2.0, "client.lr": 0.1}
    records = [trial("A", 0, one, 0.5), trial("A", 0, one, 0.5), trial("A", 1, begun, 0.4)]
    records[1].seed = 1
    records += [confirmation("A", 0, s, one, 0.5, curve(0.5)) for s in (2, 3)]
    methods = {"A": {"space": LR}, "B": {"space": LR}}
    report = make_report(methods, records, {"max_client_samples": 3000, "seeds": 2})
    assert {row.name: row.missing for row in report.rows} == {
        "A": "1 of 3 confirmation runs still to come",
        "B": "",
    }


def test_seeds_that_an_extension_searches_on_confirm_nothing(make_report):
    one = {"server.lr": 1.0, "client.lr": 0.1}
    records = [trial("A", n, {**one, "server.lr": n + 1.0}, 0.5 - n / 10) for n in range(3)]
    more = [trial("A", r.number, r.values, r.score) for r in records]
    for record in more:
        record.seed = 1
    records += [*more, *(confirmation("A", 0, s, one, 0.5, curve(0.5)) for s in (1, 2, 3))]
    report = make_report({"A": {"space": LR}}, records, {"seeds": 2})  # fresh are 2, 3, 4
    assert report.rows[0].summary.test.seeds == 2
    assert report.rows[0].missing == "1 of 3 confirmation runs still to come"


def test_one_seed_without_classes(one_seed):
    (row,) = one_seed.rows
    assert one_seed.headline == "test/loss"
    assert row.reach == Reach(4.0, 1, 1)
    assert math.isnan(row.summary.test.high)
    assert rows_of(one_seed)["A"]["test_high"] == ""
    assert "$2.5000$" in as_latex(one_seed)


def test_a_loss_of_the_lucky_seeds_alone_is_not_the_best(wild):
    assert [(row.rank, row.name, row.wins) for row in wild.rows] == [
        (1, "Steady", True),
        (2, "Wild", False),
    ]
    rows = rows_of(wild)
    assert [rows["Wild"][k] for k in ("seeds", "seeds_diverged", "seeds_failed")] == ["1", "3", "0"]
    assert rows["Steady"]["seeds_diverged"] == "0"
    assert rows["Wild"]["diverged"] == "0"  # of the trials
    assert outcome(wild)[0].startswith("Steady is best of 2")
    text = as_latex(wild)
    assert r"\textbf{Steady}" in text
    assert r"Wild & -- & $2.2525$ & $0.0100^{\dagger}$ & $-0.0700^{\dagger}$ &" in text
    note = r"\multicolumn{6}{l}{$^{\dagger}$ Wild: 3 diverged of its fresh seeds (left out)} \\"
    assert note in text.splitlines()


def test_the_best_of_methods_that_all_diverged_somewhere_is_not_marked(make_report):
    lost = {"status": "diverged", "metrics": {}}
    records = [
        confirmation("A", 0, s, {}, 0.5, curve(0.5, metric="val/loss"), metric="test/loss", **more)
        for s, more in ((1, {}), (2, {}), (3, lost))
    ]
    report = make_report({"A": {"space": {}}}, records, {"metric": "val/loss"})
    assert not report.rows[0].wins
    assert "textbf" not in as_latex(report)
    assert outcome(report) == [
        "A is best of 1, with test/loss 0.5000 ± 0.0000 without 1 diverged over 3 fresh seeds."
    ]


def test_an_accuracy_that_counts_divergence_as_0_says_so_in_latex(make_report):
    records = [
        confirmation("A", 0, s, {}, 0.9, curve(0.9), status=status, metrics=metrics)
        for s, status, metrics in (
            (1, "complete", {"test/accuracy": 0.9, "val/accuracy": 0.9}),
            (2, "diverged", {}),
            (3, "failed", {}),
        )
    ]
    report = make_report({"A": {"space": {}}}, records)
    assert report.rows[0].wins
    text = as_latex(report)
    assert r"0.4500 \pm" in text
    assert "A: 1 diverged, 1 failed of its fresh seeds (diverged: accuracy 0)" in text


def test_a_difference_that_is_the_same_on_every_seed_has_no_p_in_any_file(make_report):
    tested = {"A": (342, 339, 345), "B": (341, 338, 344)}
    records = [
        confirmation(name, 0, seed, {}, correct / 360, curve(0.5))
        for name, counts in tested.items()
        for seed, correct in enumerate(counts, start=1)
    ]
    report = make_report({name: {"space": {}} for name in tested}, records)
    row = rows_of(report)["B"]
    assert float(row["difference"]) == pytest.approx(-1 / 360)
    assert (row["difference_low"], row["difference_high"], row["p"]) == ("", "", "")
    assert "$-0.0028$ (no $p$: all equal)" in as_latex(report)
    assert "-0.0028 (all equal)" in as_html(report)
    assert "so there is no p" in as_html(report)
    assert report.as_json()["methods"]["B"]["against_best"]["p"] is None


def test_scenarios_are_ranked_apart(make_report):
    methods = {
        f"{name} @ {cell}": {"space": {}, "scenario": {"method": name, "alpha": cell}}
        for cell in ("mild", "harsh")
        for name in ("A", "B")
    }
    records = []
    for number, name in enumerate(methods):
        records.append(trial(name, 0, {}, 0.5))
        tested = [0.1, 0.2, 0.4, 0.3][number]
        records += [confirmation(name, 0, s, {}, tested, curve(0.5)) for s in (1, 2, 3)]
    report = make_report(methods, records)
    cells = {k: [(r.rank, r.title) for r in rows] for k, rows in report.cells.items()}
    assert cells == {"alpha mild": [(1, "B"), (2, "A")], "alpha harsh": [(1, "A"), (2, "B")]}
    assert r"\emph{alpha harsh}" in as_latex(report)
    against = {name: m.against_best for name, m in report.summary.methods.items()}
    assert [name for name, found in against.items() if found is None] == ["B @ mild", "A @ harsh"]
    assert against["A @ mild"].difference.mean == pytest.approx(-0.1)  # to the best of its own cell
    assert against["B @ harsh"].difference.mean == pytest.approx(-0.1)


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_a_run_that_did_not_complete_has_reached_nothing(status):
    run = confirmation("A", 0, 1, {}, 0.9, curve(0.9), status=status)
    goal = Objective("val/accuracy", True, target=0.5)
    assert Reach.of([run], goal) == Reach(None, 0, 1)


def test_a_target_of_a_loss_is_reached_from_above():
    run = confirmation("A", 0, 1, {}, 0.9, curve(3.0, 1.0, metric="val/loss"))
    assert Reach.of([run], Objective("val/loss", False, target=1.0)) == Reach(4.0, 1, 1)


def test_reaches_are_read_at_a_glance():
    assert str(Reach(3.0, 2, 3)) == "3 (1 of 3 not)"
    assert str(Reach(3.5, 3, 3)) == "3.5"
    assert str(Reach(None, 0, 3)) == "not reached"
    assert str(Reach(None, 0, 0)) == "-"


def test_traffic_is_not_known_where_every_confirmed_run_broke_off(make_report):
    one = {"server.lr": 1.0, "client.lr": 0.1}
    records = [trial("A", 0, one, 0.5)]
    records += [confirmation("A", 0, s, one, 0.0, curve(0.1), status="diverged") for s in (1, 2, 3)]
    report = make_report({"A": {"space": LR}}, records)
    assert report.rows[0].summary.test.mean == 0.0
    assert rows_of(report)["A"]["uplink_bits"] == ""
    assert "n/a" in as_latex(report)
    out = io.StringIO()
    print_report(report, Console(file=out, width=160))
    assert out.getvalue().count("n/a") == 2
    json.dumps(report.as_json(), allow_nan=False)


def test_bits_are_shown_in_bytes():
    assert [bits_text(b) for b in (0, 80, 8192, 12 * MIB, 8e12)] == [
        "0 B",
        "10 B",
        "1 KiB",
        "12 MiB",
        "931 GiB",
    ]


def test_a_target_that_is_no_number(make_report):
    with pytest.raises(ConfigError, match="--target: found nan"):
        make_report({"A": {"space": {}}}, [], target=math.nan)


def test_the_terminal_shows_results_cost_and_what_is_missing(in_pieces):
    out = io.StringIO()
    print_report(in_pieces, Console(file=out, width=160))
    assert "made: cost and trust" in out.getvalue()
    assert "0 B" not in out.getvalue()  # nothing was sent, for nothing is confirmed
    assert "unfinished: Empty: 3 of 3 trials" in out.getvalue()
    assert "go on with: python -m fltune resume made" in out.getvalue()


def test_the_command_writes_all_files_and_ends_with_json(two_methods, tmp_path, capsys):
    files = {name: tmp_path / f"out.{name}" for name in ("html", "csv", "latex")}
    options = [text for name, path in files.items() for text in (f"--{name}", str(path))]
    with pytest.raises(SystemExit) as ended:
        main(["compare", "made", "--json", *options, "--set", f"tracking.root={tmp_path}"])
    assert ended.value.code == 0
    out = capsys.readouterr().out.splitlines()
    assert json.loads(out[-1])["methods"]["FedAvg"]["rank"] == 1
    assert json.loads(out[-1])["target"] is None
    assert files["html"].read_text().startswith("<!DOCTYPE html>")
    assert files["csv"].read_text().startswith("scenario,rank,method,")
    assert r"\toprule" in files["latex"].read_text()


def test_an_accuracy_is_the_target_of_a_search_for_few_bits(make_report):
    one = {"server.lr": 1.0, "client.lr": 0.1}
    records = [trial("A", 0, one, 5.0), confirmation("A", 0, 1, one, 0.9, curve(0.4, 0.9))]
    search = {"metric": "comm/up_bits", "confirm_seeds": 1}
    report = make_report({"A": {"space": LR}}, records, search, target=0.5)
    assert report.goal.label == "rounds to val/accuracy >= 0.5"
    assert report.rows[0].reach == Reach(4.0, 1, 1)


def test_a_target_is_passed_in_the_direction_that_the_search_chose_by(make_report):
    """A metric of one's own has no direction but the file's."""
    one = {"server.lr": 1.0, "client.lr": 0.1}
    rows = curve(0.4, 0.9, metric="val/f1")
    records = [trial("A", 0, one, 0.9), confirmation("A", 0, 1, one, 0.9, rows, scores=[0.9])]
    search = {"metric": "val/f1", "mode": "max", "confirm_seeds": 1}
    report = make_report({"A": {"space": LR}}, records, search, target=0.5)
    assert report.goal.label == "rounds to val/f1 >= 0.5"
    assert report.rows[0].reach == Reach(4.0, 1, 1)


def test_a_file_that_cannot_be_written(two_methods, tmp_path):
    with pytest.raises(ConfigError, match=r"--csv: .*No such file"):
        write_files(two_methods, csv=tmp_path / "no" / "a.csv")
    path = tmp_path / "a.tex"
    assert write_files(two_methods, latex=path) == [path]
    assert path.read_text() == as_latex(two_methods)
