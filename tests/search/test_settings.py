import pytest
from pydantic import ValidationError

from fltune.schema import problems, validate
from fltune.search.objective import Constraint, Objective
from fltune.search.settings import Settings


def search(**own):
    return validate(Settings, {"search": own}).search


def problems_of(**own):
    with pytest.raises(ValidationError) as caught:
        search(**own)
    return problems(caught.value)


def goal(metric="val/accuracy", maximize=True, average_last=1, best=False, target=None):
    return Objective(metric, maximize, average_last, best, target)


@pytest.mark.parametrize(
    ("said", "in_environment", "cluster"),
    [
        (None, None, None),
        (None, "", None),
        (None, "10.0.0.1:6379", "10.0.0.1:6379"),
        (None, "local", None),
        ("auto", "10.0.0.1:6379", "auto"),
        ("local", "10.0.0.1:6379", None),  # what is said counts more
    ],
)
def test_which_cluster_is_joined(monkeypatch, said, in_environment, cluster):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if in_environment is not None:
        monkeypatch.setenv("RAY_ADDRESS", in_environment)
    assert validate(Settings, {"ray": {"address": said}}).ray.cluster == cluster


@pytest.mark.parametrize(
    ("own", "goals"),
    [
        ({}, [goal()]),
        ({"metric": "val/loss"}, [goal("val/loss", False)]),
        ({"mode": "min"}, [goal(maximize=False)]),
        ({"average_last": 3}, [goal(average_last=3)]),
        ({"average_last": 3, "select": "mean"}, [goal(average_last=3)]),
        ({"average_last": 3, "select": "best"}, [goal(average_last=3, best=True)]),
        ({"select": "last"}, [goal()]),
        ({"metric": "val/auc", "mode": "max"}, [goal("val/auc")]),
        ({"objectives": []}, [goal()]),
        (
            {"objectives": ["val/loss", {"metric": "comm/up_bits", "mode": "min"}]},
            [goal("val/loss", False), goal("comm/up_bits", False)],
        ),
        ({"objectives": [{"metric": "val/accuracy", "target": 0.9}]}, [goal(target=0.9)]),
        (
            {
                "average_last": 3,
                "objectives": ["val/loss", {"metric": "val/accuracy", "average_last": 2}],
            },
            [goal("val/loss", False, 3), goal(average_last=2)],
        ),
        (
            {"objectives": ["val/accuracy", {"metric": "val/accuracy", "target": 0.9}]},
            [goal(), goal(target=0.9)],
        ),
        (
            {
                "select": "best",
                "objectives": ["val/loss", {"metric": "val/loss", "select": "last"}],
            },
            [goal("val/loss", False, best=True), goal("val/loss", False)],
        ),
    ],
)
def test_what_a_search_is_judged_by(own, goals):
    settings = search(**own)
    assert list(settings.goals) == goals
    assert settings.maximize == (goals[0].direction == "maximize")
    assert settings.metric == goals[0].metric
    again = search(**settings.model_dump(mode="json"))  # as the frozen file of a search has it
    assert again == settings


def test_constraints_keep_the_files_order():
    written = {"comm/up_bits": {"max": "1e9"}, "val/loss": {"min": 0.1, "max": 0.5}}
    settings = search(constraints=written)
    assert settings.limits == (
        Constraint("comm/up_bits", None, 1e9),
        Constraint("val/loss", 0.1, 0.5),
    )
    assert search(**settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("tpe", "tpe"),
        ("TPESampler", "tpe"),
        ("NSGA-II", "nsga2"),
        ("CmaEsSampler", "cmaes"),
        ("cma-es", "cmaes"),
        ("GP", "gp"),
        ("GridSampler", "grid"),
    ],
)
def test_samplers_go_by_optunas_names_too(written, name):
    assert search(sampler=written).sampler == name


@pytest.mark.parametrize(
    ("own", "messages"),
    [
        ({"sampler": "cmeas"}, ["search.sampler: found 'cmeas'; must be one of tpe, random, qmc"]),
        ({"sampler": 3}, ["search.sampler: found 3; should be 'tpe', 'random'"]),
        ({"pack": 0}, ["search.pack: found 0; auto, or how many runs go together: 1, 2, ..."]),
        ({"pack": True}, ["search.pack: found True; auto, or how many"]),
        ({"pack": "all"}, ["search.pack: found 'all'; auto, or how many"]),
        (
            {"sampler_options": {"multivariat": True, "group": 3}},
            [
                "search.sampler_options.multivariat: unknown option of tpe; did you mean "
                "'multivariate'?; known: ",
                "search.sampler_options.group: found 3; should be bool",
            ],
        ),
        (
            {"sampler_options": {"n_startup_trials": True}},
            ["search.sampler_options.n_startup_trials: found True; should be int"],
        ),
        (
            {"sampler_options": {"seed": 3}},
            ["search.sampler_options.seed: unknown option of tpe"],
        ),
        (
            {"sampler_options": {"prior_weight": 2.0}},
            ["search.sampler_options: `prior_weight` has been deprecated"],
        ),
        (
            {"sampler": "nsga2", "sampler_options": {"population_size": 1}},
            ["search.sampler_options: `population_size` must be greater"],
        ),
        (
            {"sampler": "grid", "sampler_options": {"x": 1}},
            ["search.sampler_options: a grid has no options"],
        ),
        (
            {"objectives": ["val/accuracy", "val/loss"], "sampler": "cmaes", "scheduler": "asha"},
            [
                "search.sampler: cmaes knows one objective; take tpe, nsga2, gp, qmc or random",
                "search.scheduler: asha ranks trials by one objective; with several, take none",
            ],
        ),
        (
            {"objectives": [{"metric": "val/loss", "target": 0.1}], "scheduler": "median"},
            ["search.scheduler: rounds to a target are not known early"],
        ),
        (
            {"objectives": ["val/accuracy", {"metrc": "val/loss"}, "val/acuracy"]},
            [
                "search.objectives.1.metric: missing; required",
                "search.objectives.1.metrc: unknown key; did you mean 'metric'?; known: metric",
                "search.objectives.2.metric: found 'val/acuracy'; did you mean 'val/accuracy'?",
            ],
        ),
        (
            {"objectives": ["val/accuracy"], "metric": "val/loss"},
            ["search.metric: the first of objectives is 'val/accuracy'; leave metric and mode out"],
        ),
        ({"objectives": ["val/loss"] * 2}, ["search.objectives: val/loss is named twice"]),
        (
            {"objectives": ["val/auc"]},
            ["search.objectives.0: val/auc is a metric of your own; say"],
        ),
        ({"metric": "val/auc"}, ["search.mode: say max or min; val/auc is a metric of your own"]),
        (
            {"objectives": [{"metric": "val/loss", "target": 1, "average_last": 3}]},
            ["search.objectives.0: target counts rounds; select and average_last do not apply"],
        ),
        (
            {"objectives": "val/loss"},
            ["search.objectives: found 'val/loss'; should be a valid list"],
        ),
        ({"select": "mean"}, ["search.select: mean of one evaluation; set average_last: 3, say"]),
        (
            {"select": "last", "average_last": 3},
            ["search.select: last is one evaluation, average_last is 3"],
        ),
        (
            {"constraints": {"comm/up": {"max": 1}}},
            ["search.constraints.comm/up: found 'comm/up';"],
        ),
        (
            {"constraints": {"test/loss": {"max": 1}}},
            ["search.constraints.test/loss: found 'test/loss'; select on validation"],
        ),
        (
            {"constraints": {"val/loss": {"mx": 1}, "train/loss": {}}},
            [
                "search.constraints.val/loss.mx: unknown key; did you mean 'max'?; known: max, min",
                "search.constraints.train/loss: give a bound, such as {max: 1.0e+9}",
            ],
        ),
        (
            {"constraints": {"val/loss": {"max": 1, "min": 2}}},
            ["search.constraints.val/loss: min 2 is above max 1"],
        ),
        (
            {"constraints": ["val/loss"]},
            ["search.constraints: found ['val/loss']; should be a valid"],
        ),
        ({"scheduler": "ahsa"}, ["search.scheduler: found 'ahsa'; should be 'none', 'asha',"]),
        (
            {"first_panel": 5},
            [
                "search.first_panel: found 5; scheduler none has no rungs; take asha or hyperband, "
                "or drop it"
            ],
        ),
        (
            {"first_panel": 5, "scheduler": "asha", "select": "best"},
            [
                "search.first_panel: found 5; scores of several evaluations mix what few and many "
                "clients say; take select: last, or drop it"
            ],
        ),
        (
            {"first_panel": 5, "scheduler": "hyperband", "average_last": 2},
            ["search.first_panel: found 5; scores of several evaluations mix"],
        ),
        ({"brackets": 0}, ["search.brackets: found 0; should be greater than or equal to 1"]),
    ],
)
def test_what_is_wrong_is_said_with_its_key(own, messages):
    found = problems_of(**own)
    assert len(found) == len(messages)
    for text, message in zip(found, messages, strict=True):
        assert text.startswith(message)
