import io

import pytest
from lanes import RAW, UNTUNED, end, make_lanes, take
from rich.console import Console

from fltune.report.explain import find_trial
from fltune.report.live import LiveDisplay
from fltune.report.table import values_text
from fltune.search.record import TrialRecord


def console(terminal=False):
    return Console(
        file=io.StringIO(), width=120, force_terminal=terminal, color_system=None, _environ={}
    )


def follow(display, lane, *outcomes):
    """Run the next jobs of a lane, one after another, and tell the display."""
    for score, status, message in outcomes:
        record = take(lane)
        display("start", record)
        display("progress", record)
        end(lane, record, score, status, message=message)
        display("end", record)


def test_no_terminal_gets_one_plain_line_per_run():
    out, lanes = console(), make_lanes()
    with LiveDisplay(lanes, 2, out) as display:
        follow(
            display,
            lanes["FedGM"],
            (0.5, "complete", ""),
            (0.0, "diverged", "diverged in round 3"),
            (None, "failed", "bad [/luck] in [enforce fail]"),
            (0.75, "complete", ""),
        )
    lines = out.file.getvalue().splitlines()
    assert lines[:3] == [
        "FedGM #0 (1/3) complete 0.5000  server.lr=0.5",
        "FedGM #1 (2/3) diverged 0.0000  server.lr=1  (diverged in round 3)",
        "FedGM #2 (3/3) failed -  server.lr=2  (bad [/luck] in [enforce fail])",
    ]
    assert lines[3].startswith("FedGM #0 (confirmed 1/2) seed=")
    assert "\x1b" not in out.file.getvalue()


def test_a_line_has_the_number_that_explain_takes_whatever_ends_first():
    out, lane = console(), make_lanes()["FedGM"]
    display = LiveDisplay({"FedGM": lane}, 2, out)
    records = [take(lane), take(lane)]
    for record in reversed(records):
        end(lane, record, 0.5)
        display("end", record)
    said = [line.split(" complete")[0] for line in out.file.getvalue().splitlines()]
    assert said == ["FedGM #1 (1/3)", "FedGM #0 (2/3)"]
    assert find_trial({"FedGM": lane}, "FedGM", 1)[1].values == records[1].values


def test_a_terminal_gets_the_table_with_the_best_of_each_method():
    out, lanes = console(terminal=True), make_lanes()
    with LiveDisplay(lanes, 2, out) as display:
        follow(display, lanes["FedGM"], (0.5, "complete", ""), (0.9, "diverged", "x"))
        display("start", take(lanes["FedAvg"]))
    text = out.file.getvalue()
    for part in ("best score", "FedAvg", "0.5000", "server.lr=0.5", "2/3", "0/2"):
        assert part in text
    assert "0.9000" not in text  # what diverged is no best
    assert "FedGM #0 (1/3) complete" not in text  # no plain lines beside it


def test_stages_are_shown_as_the_lists_they_are():
    server = {"name": "multistage", "betas": [0.7, 0.9], "lrs": [1.0, 0.5]}
    method = {"server": server, "space": {"server.stage_ends": {"stages": "free"}}}
    raw = {**RAW, "methods": {"Multistage": method}}
    out, lanes = console(), make_lanes(raw)
    display = LiveDisplay(lanes, 1, out)
    record = take(lanes["Multistage"])
    shown = values_text(lanes["Multistage"].method.readable(record.values))
    assert shown.startswith("server.stage_ends=[")
    display("start", record)
    out.print(display.render_running())
    end(lanes["Multistage"], record, 0.5)
    display("end", record)
    out.print(display.render())
    assert out.file.getvalue().count(shown) == 3  # while it runs, when it ends, as the best


def test_the_time_left_counts_the_runs_that_are_left():
    lanes, now = make_lanes(), [0.0]
    display = LiveDisplay(lanes, 1, console(), clock=lambda: now[0])
    assert display.render().title == "no run has ended yet"
    now[0] = 20.0
    follow(display, lanes["FedGM"], (0.5, "complete", ""))
    # 2 and 2 trials and twice 2 confirmations of 10 s each
    assert display.render().title == "about 0:01:20 left, 3 runs a minute"
    assert LiveDisplay(lanes, 4, console())._left() == "no run has ended yet"


@pytest.mark.parametrize("seeds", [1, 3])
def test_after_a_resume_what_had_ended_is_not_waited_for(seeds):
    raw_lanes = make_lanes(seeds=seeds)
    del raw_lanes["FedAvg"]
    lane = raw_lanes["FedGM"]
    begun = take(lane)
    end(lane, begun, 0.5)
    (again,) = (make_lanes(seeds=seeds)["FedGM"],)
    entry = {"event": "proposed", "number": 0, "values": begun.values, "attrs": {}}
    again.restore([entry], [begun])
    display = LiveDisplay({"FedGM": again}, 1, console(), clock=lambda: 0.0)
    display("start", begun)
    display("end", begun)
    waiting = 3 * seeds - 1 + 2
    assert display.render().title.startswith(f"about 0:{waiting * 10 // 60:02}:")
    assert display.render().title.split()[1].endswith(f"{waiting * 10 % 60:02}")


def test_a_method_without_trials_is_waited_for_by_its_confirmations():
    lanes, now = make_lanes(UNTUNED), [0.0]
    display = LiveDisplay(lanes, 1, console(), clock=lambda: now[0])
    now[0] = 20.0
    follow(display, lanes["FedGM"], (0.5, "complete", ""))
    assert display.render().title == "about 0:00:10 left, 3 runs a minute"
    cells = [next(iter(column.cells)) for column in display.render().columns]
    assert cells == ["FedGM", "0/0", "0", "0", "1/2", "-", "server.lr=2"]


def test_a_closed_method_has_no_trials_left():
    lanes = make_lanes()
    display = LiveDisplay(lanes, 1, console(), clock=lambda: 0.0)
    follow(display, lanes["FedGM"], (0.5, "complete", ""))
    for lane in lanes.values():
        lane.closed = True
    assert display.render().title.startswith("about 0:00:40 left")


def test_confirmations_of_an_earlier_winner_are_not_those_that_are_waited_for():
    lanes = {"FedGM": make_lanes()["FedGM"]}
    lane, display = lanes["FedGM"], LiveDisplay(lanes, 1, console(), clock=lambda: 0.0)
    follow(display, lane, *((score, "complete", "") for score in (0.5, 0.9, 0.4, 0.9)))
    lane.confirmation.runs[0].number = 0  # before it was extended, another config was the best
    assert list(display.render().columns[4].cells) == ["0/2"]
    assert display.render().title.startswith("about 0:00:20 left")


def test_brackets_in_a_name_are_no_markup():
    out = console(terminal=True)
    with LiveDisplay({"[/FedGM]": make_lanes()["FedGM"]}, 1, out):
        pass
    assert "[/FedGM]" in out.file.getvalue()


def test_runs_that_are_out_are_shown_with_their_curves():
    out, lanes = console(terminal=True), make_lanes()
    with LiveDisplay(lanes, 2, out) as display:
        record = take(lanes["FedGM"])
        display("start", record)
        assert "no evaluation yet" in drawn(display)
        record.rows += [{"round": r, "val/accuracy": r / 10} for r in (2, 4, 8)]
        display("progress", record)
        text = drawn(display)
        assert "FedGM #0" in text
        assert "▁▃█" in text
        assert "val/accuracy 0.8" in text
        assert "server.lr=0.5" in text
        end(lanes["FedGM"], record, 0.8)
        display("end", record)
        assert not display.render_running().rows


def drawn(display):
    page = Console(file=io.StringIO(), width=120)
    page.print(display.render_running())
    return page.file.getvalue()


def test_a_run_without_the_metric_so_far_shows_its_training_loss():
    lanes = make_lanes()
    display = LiveDisplay(lanes, 1, console())
    record = take(lanes["FedGM"])
    record.rows = [{"round": 2, "train/loss": 2.0}, {"round": 4, "train/loss": 1.0}]
    display("progress", record)
    assert "train/loss 1" in drawn(display)


def test_no_more_runs_are_shown_than_have_room():
    lanes = make_lanes()
    display = LiveDisplay(lanes, 20, console())
    for number in range(11):
        display("start", TrialRecord("FedGM", "trial", number, {}, seed=0))
    assert "and 3 more" in drawn(display)
    assert display.render().row_count == 2


def many(count):
    space = {"server.lr": {"grid": [0.5, 1.0]}, "client.lr": {"grid": [0.1]}}
    methods = {f"Method {n}": {"space": space} for n in range(count)}
    return make_lanes({**RAW, "methods": methods})


def test_of_more_methods_than_have_room_those_at_work_are_shown():
    lanes = many(40)
    out = Console(file=io.StringIO(), width=80, height=24, force_terminal=True, color_system=None)
    display = LiveDisplay(lanes, 2, out)
    follow(display, lanes["Method 7"], (0.5, "complete", ""))
    for name in ("Method 7", "Method 36"):
        display("start", take(lanes[name]))
    display._picture = None
    out.print(display._view())
    lines = out.file.getvalue().splitlines()
    assert len(lines) <= 24
    rows = {line.split("│")[1].strip(): line.split("│")[2].strip() for line in lines if "│" in line}
    assert rows["Method 7"] == "1/2"
    assert rows["Method 36"] == "0/2"
    (rest,) = (name for name in rows if name.startswith("and"))
    assert rest == f"and {40 - (len(rows) - 1)} more"
    assert any("Method 36 #0" in line for line in lines)  # the runs that are out have their place


def test_a_picture_that_takes_long_is_drawn_seldom():
    lanes, now, drawn = make_lanes(), [0.0], []
    display = LiveDisplay(lanes, 1, console(), clock=lambda: now[0])
    display._picture = None
    whole = display.render

    def render(room=None):
        drawn.append(now[0])
        now[0] += 0.5  # of the driver's time
        return whole(room)

    display.render = render
    for _ in range(100):  # 25 seconds
        display._view()
        now[0] += 0.25
    assert len(drawn) == 3
    with display:
        pass
