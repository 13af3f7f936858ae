"""What ``resume`` refuses, and that it does nothing to a search that is finished."""

import pytest
from night import same

from fltune.search.state import SearchState


def test_a_name_that_no_search_has(night, refused):
    assert refused(night, "resume", night.name) == (
        2,
        f"fltune: no search named 'night'; there is none in {night.folder / 'mlruns'}\n",
    )


@pytest.mark.search
def test_a_name_that_is_nearly_one(undisturbed, refused):
    assert refused(undisturbed, "resume", "nigth") == (
        2,
        "fltune: no search named 'nigth'; did you mean 'night'?; there are: night\n",
    )


@pytest.mark.search
def test_a_changed_setting_is_refused(undisturbed, refused):
    changed = ("--set", "search.trials=9", "--set", "server.lr=1")
    allowed = "what can: tracking, resources, ray, search.concurrent; see extend"
    assert refused(undisturbed, "resume", undisturbed.name, *changed) == (
        2,
        "fltune: 2 problems\n"
        f"  - search.trials: cannot change now; {allowed}\n"
        f"  - server.lr: cannot change now; {allowed}\n",
    )


@pytest.mark.search
def test_two_processes_cannot_run_one_search(undisturbed):
    frozen = (undisturbed.state / "search.yaml").read_text()
    held = SearchState(undisturbed.state)
    held.lock()
    try:
        command = undisturbed.command("extend", undisturbed.name, "--trials", "2")
        assert command.wait() == 1, command.printed
    finally:
        held.release()
    assert command.err == "fltune: another process is running the search 'night'\n"
    assert (undisturbed.state / "search.yaml").read_text() == frozen


@pytest.mark.search
def test_resume_of_a_finished_search_reports_it_again_and_starts_nothing(undisturbed):
    first = undisturbed.commands[0]
    before = undisturbed.results(), undisturbed.decisions(), undisturbed.tracked()
    again = undisturbed.done(undisturbed.resume())
    assert again.out == first.out[first.out.index("night: tuned methods") :]
    assert (undisturbed.results(), undisturbed.decisions(), undisturbed.tracked()) == before
    same(undisturbed, undisturbed)


@pytest.mark.search
def test_a_name_that_is_taken_is_refused(undisturbed, refused):
    assert refused(undisturbed, "search", "two.yaml", "--name", undisturbed.name) == (
        2,
        "fltune: a search named 'night' exists already; choose another --name, or go on with it: "
        "python -m fltune resume night\n",
    )
