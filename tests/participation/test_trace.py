import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fltune.participation.trace import Trace, read_rounds, record, write_rounds
from fltune.participation.uniform import Uniform

ROUNDS = [[3, 7], [], [0], []]


@pytest.mark.parametrize("suffix", [".json", ".csv", ".JSON"])
@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 20), max_size=6), min_size=1, max_size=8))
def test_files_hold_what_was_written(tmp_path_factory, suffix, rounds):
    path = tmp_path_factory.mktemp("traces") / f"trace{suffix}"
    write_rounds(path, rounds)
    assert read_rounds(path) == rounds
    assert record(Trace(file=str(path), repeats=True).bind(21, 0), len(rounds)) == [
        sorted(cohort) for cohort in rounds
    ]


def test_files_as_a_person_would_write_them(tmp_path):
    table, plain, under = tmp_path / "a.csv", tmp_path / "b.json", tmp_path / "c.json"
    table.write_text("\ufeffround, client\r\n0,3\r\n0, 7\r\n\r\n1,\r\n2,0\r\n3,\r\n")
    plain.write_text(json.dumps(ROUNDS))
    under.write_text(json.dumps({"rounds": ROUNDS, "note": "from the pilot"}))
    assert read_rounds(table) == read_rounds(plain) == read_rounds(under) == ROUNDS


def test_recording_goes_on_from_where_the_pattern_is():
    pattern = Uniform(3).bind(9, 0)
    first, rest = record(pattern, 2), record(pattern, 3)
    assert pattern.round == 5
    assert first + rest == record(Uniform(3).bind(9, 0), 5)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "", "line 1: found ''; the header is 'round,client'"),
        ("t.csv", "0,3\n", "line 1: found '0,3'; the header is 'round,client'"),
        ("t.csv", "round,client\n0,1\n0,x\n", "line 3: found '0,x'; should be a round and"),
        ("t.csv", "round,client\n0,1,2\n", "line 2: found '0,1,2'; should be a round and"),
        ("t.csv", "round,client\n0,-1\n", "line 2: found '0,-1'; should be a round and"),
        (
            "t.csv",
            "round,client\n0,1\n2,1\n",
            "line 3: found round 2; rounds go from 0.* 1 is next",
        ),
        ("t.csv", "round,client\n1,1\n", "line 2: found round 1; rounds go from 0.* 0 is next"),
        ("t.csv", "round,client\n0,\n1,\n0,1\n", "line 4: found round 0; rounds go from 0"),
        ("t.csv", "round,client\n", "t.csv: rounds is empty: a trace needs at least one round"),
        ("t.json", "[[1], [2]", "line 1, column 10: is no JSON"),
        ("t.json", "[]", "t.json: rounds is empty"),
        ("t.json", "3", "found int; should be a list of rounds"),
        ("t.json", '{"cohorts": []}', "found dict; should be a list of rounds"),
        ("t.json", "[[0], 1]", r"rounds\[1\]: found 1; should be a list of ids"),
        ("t.json", "[[0], [true]]", r"rounds\[1\]: found \[True\]; should be a list of ids"),
        ("t.json", "[[0], [4]]", r"t.json: rounds\[1\] names client 4; ids are 0\.\.3"),
        ("t.csv", "round,client\n0,4\n", r"t.csv: rounds\[0\] names client 4; ids are 0\.\.3"),
        ("t.json", "[[2, 2]]", r"t.json: rounds\[0\] names a client twice: \[2, 2\]; allow it"),
        ("t.yaml", "", "found suffix '.yaml'; a trace is a .csv or a .json file"),
    ],
    ids=str,
)
def test_a_wrong_file_is_named_with_the_line(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        Trace(file=str(path)).bind(4, 0)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match=r"none.csv: cannot be read: No such file"):
        Trace(file=str(tmp_path / "none.csv"))
    for name in ("t.csv", "t.json"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00")
        with pytest.raises(ValueError, match="is no plain text"):
            Trace(file=str(tmp_path / name))
    with pytest.raises(ValueError, match=r"found suffix '\.txt'"):
        write_rounds(tmp_path / "t.txt", [[0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a trace has rounds or a file of them, one of the two; found neither"),
        ({"rounds": [[0]], "file": "x.csv"}, "found both"),
        ({"rounds": [[0]], "repeats": True, "multiplicity": True}, "works twice or has twice"),
    ],
)
def test_what_does_not_go_together(options, message):
    with pytest.raises(ValueError, match=message):
        Trace(**options)
