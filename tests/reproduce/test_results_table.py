"""The table of results: what runs ended with, and who has no end to tell."""

from made_by_hand import evidence, run, series

from fltune.reproduce.reproduction import results_table


def test_a_run_that_diverged_is_counted_and_is_in_no_mean():
    runs = [run(1, 0.8), run(2, 0.8), run(3, status="diverged")]
    runs[2].metrics = {"test/accuracy": 0.1, "train/loss": 1e12}  # what it had when it was given up
    heads, (row,) = results_table(evidence(series("A", runs)))
    assert heads == ["method", "chosen", "test/accuracy", "train/loss", "seeds", "diverged"]
    assert row == ["A", "-", "0.8000 ± 0.0000", "-", "3", "1"]


def test_a_method_without_a_run_says_that_all_were_lost():
    _, rows = results_table(evidence(series("A", [run(1, 0.8)]), series("B", [], lost=True)))
    assert rows == [["A", "-", "0.8", "1", "0"], ["B", "-", "-", "0", "all"]]
