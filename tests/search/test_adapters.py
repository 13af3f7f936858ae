"""Ray's hooks pass everything on, and nothing of them can be pickled into Ray's own state."""

import pickle
from types import SimpleNamespace

import pytest
from fake_workers import DRAWN, Disk, config_of

pytestmark = pytest.mark.search


@pytest.fixture
def hooks(tmp_path):
    from fltune.search.adapters import CampaignEvents, CampaignScheduler, CampaignSearcher
    from fltune.search.campaign import Campaign
    from fltune.search.packer import Packer
    from fltune.search.packs import Packs

    config = config_of({"A": DRAWN}, trials=2, confirm_seeds=0, scheduler="asha", grace=2)
    campaign = Campaign(config, Disk(tmp_path), lambda event, record: None)
    packs = Packs(campaign, Packer(config.settings.search, 2), SimpleNamespace(name="line"))
    made = (CampaignSearcher(packs), CampaignScheduler(packs), CampaignEvents(packs))
    return SimpleNamespace(
        campaign=campaign, packs=packs, searcher=made[0], scheduler=made[1], events=made[2]
    )


def report(round, score):
    entry = {"round": round, "scores": [score], "rows": [{"round": round, "val/accuracy": score}]}
    return {"round": round, "members": [{"member": 0, **entry}]}


def test_a_trial_goes_through_the_hooks_to_its_end(hooks, tmp_path):
    trials = [SimpleNamespace(trial_id=f"t{n}", error_file=None) for n in range(2)]
    for n, trial in enumerate(trials):
        (job,) = hooks.searcher.suggest(trial.trial_id)["jobs"]
        assert (job["number"], job["member"]) == (n, 0)
        hooks.events.on_trial_start(0, trials, trial)
    assert hooks.searcher.suggest("t2") is None
    decisions = []
    for trial, score in zip(trials, (0.9, 0.1), strict=True):
        result = report(2.0, score)
        decisions.append(hooks.scheduler.on_trial_result(None, trial, result))
        hooks.events.on_trial_result(0, trials, trial, result)
    assert decisions == ["CONTINUE", "STOP"]
    hooks.searcher.on_trial_complete("t1", result=result)
    hooks.events.on_trial_complete(0, trials, trials[1])
    trials[0].error_file = str(tmp_path / "error.txt")
    (tmp_path / "error.txt").write_text("Traceback\n  ...\nActorDiedError: killed\n\n")
    hooks.events.on_trial_error(0, trials, trials[0])
    found = {r.number: (r.status, r.message) for r in hooks.campaign.records}
    assert found[0] == ("failed", "lost its worker 3 times: ActorDiedError: killed")
    assert found[1][0] == "pruned"
    assert hooks.searcher.suggest("t2") == "FINISHED"


def test_a_worker_that_leaves_no_word_has_died(hooks):
    trial = SimpleNamespace(trial_id="t0", error_file="/nowhere/error.txt")
    hooks.searcher.suggest("t0")
    hooks.events.on_trial_start(0, [], trial)
    hooks.events.on_trial_error(0, [], trial)
    (record,) = hooks.campaign.records
    assert record.message == "lost its worker 3 times: the worker died"


def test_the_campaign_stays_out_of_rays_own_state(hooks):
    for hook in (hooks.searcher, hooks.scheduler, hooks.events):
        assert pickle.loads(pickle.dumps(hook)).packs is None
        assert hook.packs is hooks.packs


def test_a_trial_that_has_lost_its_worker_goes_on_with_what_has_not_ended(hooks):
    config = {**hooks.searcher.suggest("t0"), "cpus": 1}
    changed = []
    trial = SimpleNamespace(trial_id="t0", config=config, set_config=changed.append)
    hooks.events.on_trial_start(0, [], trial)
    hooks.events.on_trial_recover(0, [], trial)
    assert changed == [config]
    final = {"finished": True, "status": "failed", "message": "ValueError: no"}
    hooks.events.on_trial_result(0, [], trial, {"members": [{"member": 0, **final}]})
    hooks.events.on_trial_recover(0, [], trial)
    assert changed[1] == {**config, "jobs": []}
