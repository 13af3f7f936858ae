import json
from pathlib import Path

import pytest
from made_by_hand import claim

from fltune.reproduce.claims import Theirs
from fltune.reproduce.printed import problems, tables, text, theirs

SPECIFICATION = Path(__file__).parents[3] / "shared" / "spec" / "paper_tables.json"


def test_theirs_is_the_same_statistic_of_the_printed_numbers():
    rows = ["FedCDR / comm. rounds to 90%", "FedDR / comm. rounds to 90%"]
    one = ["participation 10% Synthetic-(1,1)"]
    where = Theirs(table="Table 4", rows=rows, columns=one)
    assert theirs(claim("ratio", than="B", theirs=where)) == f"{47 / 134:.4g}"
    lead = Theirs(table="Table 1", rows=["FedCDR", "CR+FedAvg"], columns=["Synthetic-(5,5)"])
    assert theirs(claim("difference", than="B", theirs=lead)) == f"{0.8576 - 0.4615:.4g}"
    both = lead.model_copy(update={"columns": ["Synthetic-(0,0)", "Synthetic-(5,5)"]})
    grown = (0.8576 - 0.4615) - (0.93 - 0.8812)
    assert theirs(claim("growth", than="B", along="a", theirs=both)) == f"{grown:.4g}"


def test_a_censored_number_stays_text():
    where = Theirs(
        table="Table 8", rows=["FedCDR", "CR+FedAvg"], columns=["alpha=0.1 stragglers 90%"]
    )
    assert theirs(claim("ratio", than="B", theirs=where)) == "116, >400"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (("Table 1", "FedCDR", "Synthetic-(5,5)"), "0.8576 ± 0.0037"),
        (("Table 8", "CR+FedAvg", "alpha=0.1 stragglers 90%"), ">400"),
        (("Table 8", "CR+FedAvg", "alpha=0.1 stragglers 0%"), "386"),
        (("Table 4", "FedDR / top-1 accuracy", "participation 5% Synthetic-(0,0)"), "0.9167"),
        (("Table 4", "FedDR / comm. rounds to 90%", "participation 5% Synthetic-(0,0)"), "235"),
    ],
)
def test_a_number_is_shown_as_printed(place, expected):
    assert text(*place) == expected


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"table": "Table 44"}, "'Table 44' is not printed; did you mean 'Table 4'"),
        ({"rows": ["FedXY"]}, "no row 'FedXY'"),
        ({"columns": ["Synthetic-(9,9)"]}, "has no column 'Synthetic-(9,9)'"),
    ],
)
def test_what_is_not_printed_is_refused(where, message):
    good = {"table": "Table 1", "rows": ["FedCDR"], "columns": ["Synthetic-(5,5)"]}
    asked = {**good, **where}
    (problem,) = problems("claims.c.theirs", asked["table"], asked["rows"], asked["columns"])
    assert problem.startswith("claims.c.theirs.")
    assert message in problem


@pytest.mark.skipif(not SPECIFICATION.exists(), reason="the specification is not here")
def test_every_number_is_the_specification_s():
    records = json.loads(SPECIFICATION.read_text(encoding="utf-8"))["records"]
    wanted = {
        (r["table"], r["row"], r["column"]): r["mean"] if r.get("value") is None else r["value"]
        for r in records
        if r["paper"] == "003-fedcdr"
    }
    found = 0
    for name, table in tables().items():
        if "," in name:  # of another paper, a range in words
            continue
        for row, columns in table["rows"].items():
            for column, value in columns.items():
                printed = value[0] if isinstance(value, list) else value
                assert printed == wanted[name, row, column]
                found += 1
    assert found > 300
