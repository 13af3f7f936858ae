import io

import pytest
from rich.console import Console

from fltune.report.live import LiveDisplay
from fltune.search.record import TrialRecord


def console(terminal=False):
    return Console(
        file=io.StringIO(), width=120, force_terminal=terminal, color_system=None, _environ={}
    )


def record(number, score, status="complete", kind="trial", **changes):
    values = changes.pop("values", {"server.lr": 0.5 + number})
    return TrialRecord(
        method="FedGM",
        kind=kind,
        number=number,
        values=values,
        seed=number,
        status=status,
        score=score,
        seconds=10.0,
        **changes,
    )


def follow(display, *records):
    for one in records:
        display("start", one)
        display("progress", one)
        display("end", one)


def display_on(out, maximize=True, total=4):
    return LiveDisplay({"FedGM": total, "FedAvg": total}, 2, maximize, 2, out)


def test_no_terminal_gets_one_plain_line_per_run():
    out = console()
    with display_on(out) as display:
        follow(
            display,
            record(0, 0.5),
            record(1, 0.0, "diverged", message="diverged in round 3"),
            record(2, None, "failed", message="bad [/luck] in [enforce fail]"),
            record(7, 0.75, kind="confirmation"),
        )
    assert out.file.getvalue().splitlines() == [
        "FedGM 1/4 complete 0.5000  server.lr=0.5",
        "FedGM 2/4 diverged 0.0000  server.lr=1.5  (diverged in round 3)",
        "FedGM 3/4 failed -  server.lr=2.5  (bad [/luck] in [enforce fail])",
        "FedGM confirmed 1/2 seed=7 complete 0.7500  server.lr=7.5",
    ]


def test_a_long_line_is_not_broken():
    out = console()
    with display_on(out) as display:
        follow(display, record(0, 0.5, values={f"very.long.name{i}": i for i in range(12)}))
    assert len(out.file.getvalue().splitlines()) == 1


def test_a_terminal_gets_the_table():
    out = console(terminal=True)
    with display_on(out) as display:
        follow(display, record(0, 0.5), record(1, 0.9), record(2, 0.0, "diverged"))
        display("start", record(3, None))
    text = out.file.getvalue()
    assert "best score" in text
    assert "FedAvg" in text
    assert "0.9000" in text
    assert "server.lr=1.5" in text
    assert "3/4" in text
    assert "FedGM 1/4 complete" not in text  # no plain lines beside it


@pytest.mark.parametrize(("maximize", "best"), [(True, 0.9), (False, 0.5)])
def test_the_best_is_a_complete_trial_and_no_confirmation(maximize, best):
    with display_on(console(), maximize) as display:
        follow(
            display,
            record(0, 0.7),
            record(1, 0.9),
            record(2, 0.5),
            record(3, 0.99 if maximize else 0.01, "pruned"),
            record(4, 0.99 if maximize else 0.01, "diverged"),
            record(5, None, "failed"),
            record(6, 0.99 if maximize else 0.01, kind="confirmation"),
        )
        progress = display.methods["FedGM"]
    assert progress.best.score == best
    assert (progress.done, progress.diverged, progress.confirmed, progress.running) == (6, 1, 1, 0)


def test_the_time_left_is_an_estimate_that_passes_a_day():
    display = display_on(console(), total=40_000)
    assert "no trial has ended yet" in display.render().title
    follow(display, record(0, 0.5))
    assert "days" in display.render().title


def test_brackets_in_a_name_are_no_markup():
    out = console(terminal=True)
    with LiveDisplay({"[/FedGM]": 1}, 1, True, 1, out):
        pass
    assert "[/FedGM]" in out.file.getvalue()
