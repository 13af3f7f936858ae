"""Printed tables with ours in them."""

import pytest
import yaml
from made_by_hand import accuracies, evidence, run, series
from pydantic import ValidationError

from fltune.errors import ConfigError
from fltune.reproduce.catalogue import Entry
from fltune.reproduce.claims import Numbers
from fltune.reproduce.numbers import fill, mean_and_half, problems
from fltune.reproduce.printed import text
from fltune.reproduce.reproduction import reproduce

COLUMNS = {"Synthetic-(0,0)": {"data": "near"}, "Synthetic-(5,5)": {"data": "far"}}
TABLE = Numbers(table="Table 1", columns=COLUMNS)
ROUNDS = Numbers(
    table="Table 8",
    metric="val/accuracy",
    take="rounds",
    target=0.5,
    columns={"alpha=0.1 stragglers 90%": {}},
)


def in_cells(name):
    return [accuracies(name, [0.5, 0.5], data=label) for label in ("near", "far")]


def test_ours_stand_beside_theirs_by_row_and_column():
    theirs = [text("Table 1", "FedCDR", column) for column in COLUMNS]
    found = evidence(*in_cells("FedCDR"), *in_cells("a method of ours"))
    table = fill(TABLE, found)
    assert table.title == "Table 1: test/accuracy"
    assert table.heads == ["", *COLUMNS]
    assert table.rows == [["FedCDR", *(f"0.5000 ± 0.0000 ({t})" for t in theirs)]]


def test_a_row_may_be_a_cell_of_ours():
    rows = {"FedCDR": {"method": "A", "data": "near"}, "CR+FedAvg": {"method": "A", "data": "far"}}
    wanted = Numbers(table="Table 1", rows=rows, columns={"Synthetic-(0,0)": {}})
    table = fill(wanted, evidence(accuracies("A", [0.1], data="near")))
    assert [row[0] for row in table.rows] == list(rows)
    assert table.rows[0][1].startswith("0.1 (")
    assert table.rows[1][1] == "-"  # not run: some cells were left out


def test_who_did_not_end_is_in_no_mean_and_is_told():
    runs = [run(1, 0.8), run(2, 0.8), run(3, status="diverged")]
    wanted = Numbers(table="Table 1", columns={"Synthetic-(0,0)": {}})
    ((_, cell),) = fill(wanted, evidence(series("FedCDR", runs))).rows
    assert cell.startswith("0.8000 ± 0.0000, 1 diverged of 3 (")
    ((_, cell),) = fill(wanted, evidence(series("FedCDR", [], lost=True))).rows
    assert cell.startswith("diverged (")


@pytest.mark.parametrize(
    ("curves", "expected"),
    [
        (((0.1, 0.6), (0.6, 0.7)), "1.5000 ± 6.3531 (116)"),
        (((0.1, 0.6), (0.1, 0.2)), "2, 1 never of 2 (116)"),
        (((0.1, 0.2), (0.1, 0.2)), ">10 (116)"),
    ],
)
def test_a_run_that_never_comes_to_the_target_is_no_number_of_rounds(curves, expected):
    runs = [run(i, curve=curve) for i, curve in enumerate(curves, start=1)]
    table = fill(ROUNDS, evidence(series("FedCDR", runs, rounds=10)))
    assert table.rows == [["FedCDR", expected]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": "Table 44"}, "numbers.n.table: 'Table 44' is not printed"),
        ({"columns": {"Synthetic-(9,9)": {}}}, "numbers.n.columns: row 'FedCDR' has no column"),
        ({"rows": {"FedXY": {"method": "FedCDR"}}}, "numbers.n.rows: no row 'FedXY'"),
        (
            {"columns": {"Synthetic-(0,0)": {"data": "nowhere"}}},
            "numbers.n: there is no method of ours at FedCDR, nowhere",
        ),
        # two cells are at this place
        ({"columns": {"Synthetic-(0,0)": {}}}, "numbers.n: there is no method of ours at FedCDR"),
    ],
)
def test_a_table_that_cannot_be_filled_is_refused(change, message):
    wanted = TABLE.model_copy(update=change)
    (problem,) = problems("numbers.n", wanted, evidence(*in_cells("FedCDR")))
    assert problem.startswith(message)


def test_a_table_of_nobody_we_have_is_refused():
    (problem,) = problems("numbers.n", TABLE, evidence(*in_cells("A")))
    assert problem == "numbers.n.rows: no method is called as a row of Table 1; say which is which"


@pytest.mark.parametrize("take", ["equal_bits", "equal_uplink"])
def test_a_number_is_of_one_run_alone(take):
    with pytest.raises(ValidationError, match="is for claims"):
        Numbers(table="Table 1", columns=COLUMNS, take=take, metric="val/accuracy")


def test_what_no_run_has_fills_no_table():
    wanted = Numbers(table="Table 1", columns=COLUMNS, take="setting", metric="server.lr")
    wrong = problems("numbers.n", wanted, evidence(*in_cells("FedCDR")))
    assert [text.split(";")[0] for text in wrong] == ["numbers.n.metric: found 'server.lr'"] * 2


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], "-"),
        ([0.123456], "0.1235"),
        ([0.5, 0.7], "0.6000 ± 1.2706"),
        ([100.0, 102.0], "101.0 ± 12.7"),
    ],
)
def test_a_mean_has_the_digits_that_tell_something(values, expected):
    assert mean_and_half(values) == expected


def test_what_is_not_trained_fills_no_table(tmp_path):
    path = tmp_path / "counted.yaml"
    numbers = {"n": {"table": "Table 6", "columns": {"95% probability": {}}}}
    path.write_text(yaml.safe_dump({"computes": "fairness", "numbers": numbers}))
    with pytest.raises(ConfigError, match=r"numbers\.n: found Table 6; runs fill it"):
        reproduce(Entry.read(path))
