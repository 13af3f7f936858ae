"""What holds for every space a file can say: random ones, and four realistic ones."""

import functools
import json

import optuna
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from realistic_spaces import REALISTIC, method_of

from fltune import dotted
from fltune.search.entries import Tied
from fltune.search.space_parser import Surroundings, parse_space
from fltune.search.warm_points import parse_points

optuna.logging.set_verbosity(optuna.logging.ERROR)

OWN = {"rounds": 60, "own.number": 3, "own.name": "fedgm"}
SAMPLERS = {
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, n_startup_trials=3),
    "multivariate": lambda seed: optuna.samplers.TPESampler(
        seed=seed,
        n_startup_trials=3,
        multivariate=True,
        group=True,
        warn_independent_sampling=False,
    ),
}

numbers = st.integers(-9, 9) | st.floats(-9, 9, width=16)
plain = st.one_of(numbers, st.text("abc", max_size=2), st.booleans(), st.none())
positive = st.floats(0.001, 9)


def distinct(values):
    return values if all(v not in values[:i] for i, v in enumerate(values)) else values[:1]


lists = st.lists(plain | st.lists(st.integers(0, 3), max_size=2), min_size=1, max_size=4)
finite = st.one_of(
    st.lists(numbers, min_size=1, max_size=4).map(lambda v: {"grid": distinct(v)}),
    lists.map(lambda v: {"choice": distinct(v)}),
)
ranges = st.one_of(
    st.tuples(numbers, positive).map(lambda p: {"uniform": [p[0], p[0] + p[1] + 0.01]}),
    st.tuples(positive, positive).map(lambda p: {"loguniform": [p[0], p[0] * (1.01 + p[1])]}),
    st.tuples(st.integers(-9, 9), st.integers(1, 9)).map(lambda p: {"int": [p[0], sum(p)]}),
    st.tuples(st.integers(1, 9), st.integers(1, 90)).map(lambda p: {"logint": [p[0], sum(p)]}),
    st.tuples(st.integers(-3, 3), st.integers(1, 8)).map(
        lambda p: {"uniform": [p[0], p[0] + p[1] * 0.1], "step": 0.1}
    ),
    st.tuples(st.integers(-3, 3), st.integers(1, 8)).map(
        lambda p: {"int": [p[0], p[0] + 2 * p[1]], "step": 2}
    ),
)


@st.composite
def spaces(draw, dimensions=finite | ranges, stages=True):
    """Return a ``space`` section: up to six parameters, half of them conditional, ties, stages."""
    space = {}
    for i in range(draw(st.integers(1, 6))):
        space[f"p.d{i}"] = draw(dimensions)
    for name in list(space)[1:]:
        if draw(st.booleans()):
            earlier = draw(st.sampled_from([n for n in space if n < name]))
            space[name]["when"] = {earlier: draw(conditions(space[earlier]))}
    for i in range(draw(st.integers(0, 2))):
        terms = draw(st.lists(st.sampled_from([*space, "own.number", "2"]), min_size=1, max_size=3))
        space[f"t{i}"] = {"tied": " + ".join(terms)}
    space["f"] = {"fixed": draw(lists)}
    if stages and draw(st.booleans()):
        ranged = dimensions is not finite
        inner = draw(dimensions)
        drops = {"uniform": [0.1, 0.9]} if ranged else {"choice": [0.5, 0.25]}
        space["s.stages"] = {"choice": [1, 2, 4]}
        space["s.lr"] = 2.0
        space["s.stage_ends"] = {"stages": "free" if ranged else "equal"}
        space["s.betas"] = {"stages": inner}
        space["s.lrs"] = {"stages": {"drop": drops}}
    order = draw(st.permutations(list(space)))  # a file may say things in any order
    return {name: space[name] for name in order}


@st.composite
def conditions(draw, entry):
    """Return a condition on an entry, one that can hold."""
    kind, values = next(iter(entry.items()))
    if kind not in ("grid", "choice"):
        return f"> {values[0]}"
    wanted = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2))
    single = len(wanted) == 1 and not isinstance(wanted[0], list) and draw(st.booleans())
    return wanted[0] if single else wanted


def parsed(written):
    found = []
    around = Surroundings(OWN, {}, lambda section: {})
    space = parse_space(written, around, "space", found)
    assert not found
    return space


def proposals(space, sampler, count=12, seed=0, storage=None):
    """Ask and tell; return the study and the points."""
    study = optuna.create_study(sampler=SAMPLERS[sampler](seed), storage=storage, study_name="s")
    points = []
    for n in range(count):
        trial = study.ask()
        point = space.propose(functools.partial(_suggest, trial))
        study.tell(trial, float((7 * n) % 5))
        points.append(point)
    return study, points


def _suggest(trial, name, distribution):
    return trial._suggest(name, distribution)


def values_of(space, point):
    """Return the values of a point, or None if one of its ties has none (a name, a division)."""
    try:
        return space.resolve(point)
    except ValueError:
        assert any(isinstance(e, Tied) for e in space.entries.values())
        return None


@settings(max_examples=30)
@given(written=spaces(), sampler=st.sampled_from(list(SAMPLERS)), seed=st.integers(0, 99))
def test_proposals_are_points_of_the_space_and_encode_to_what_was_drawn(written, sampler, seed):
    space = parsed(written)
    study, points = proposals(space, sampler, seed=seed)
    for trial, point in zip(study.trials, points, strict=True):
        assert not space.faults(point)
        encoded = space.encode(json.loads(json.dumps(point)))
        assert encoded == trial.params
        assert space.decode(encoded) == point
        assert space.distributions(point) == trial.distributions
        values = values_of(space, point)
        if values is not None:
            assert values["f"] == written["f"]["fixed"]
            assert json.loads(json.dumps(values)) == values
            for name, value in point.items():
                assert name not in space.entries or values[name] == value
        if values is not None and "s.stages" in values:
            ends = values["s.stage_ends"]
            assert len(ends) == len(values["s.betas"]) == len(values["s.lrs"]) == values["s.stages"]
            assert sorted({0, *ends}) == [0, *ends]
            assert ends[-1] == OWN["rounds"]
    assert proposals(space, sampler, seed=seed)[1] == points


@settings(max_examples=12)
@given(written=spaces(), sampler=st.sampled_from(list(SAMPLERS)))
def test_a_journal_gives_the_points_back(written, sampler, tmp_path_factory):
    space = parsed(written)
    file = str(tmp_path_factory.mktemp("journal") / "optuna.log")
    _, points = proposals(space, sampler, storage=JournalStorage(JournalFileBackend(file)))
    stored = optuna.load_study(study_name="s", storage=JournalStorage(JournalFileBackend(file)))
    assert [space.decode(t.params) for t in stored.trials] == points
    again = optuna.create_study()
    for point in points:
        again.add_trial(
            optuna.trial.create_trial(
                params=space.encode(point), distributions=space.distributions(point), value=0.0
            )
        )
    assert [t.params for t in again.trials] == [t.params for t in stored.trials]


@pytest.mark.parametrize("name", ["conditional", "stages"])
def test_a_database_gives_the_points_back(name, tmp_path):
    section, method = REALISTIC[name]
    space = method_of(section, **method).space
    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    _, points = proposals(space, "tpe", count=8, storage=url)
    stored = optuna.load_study(study_name="s", storage=url)
    assert [space.decode(t.params) for t in stored.trials] == points
    assert [space.encode(p) for p in points] == [t.params for t in stored.trials]


@given(written=spaces())
def test_a_space_is_written_back_as_it_was_read(written):
    space = parsed(written)
    text = yaml.safe_dump(space.to_yaml(), sort_keys=False)
    again = parsed(dotted.load_yaml(text))
    assert again == space
    assert again.order == space.order
    assert list(again.entries) == list(written)


@settings(max_examples=60)
@given(written=spaces(dimensions=finite))
def test_a_grid_has_each_point_once_and_cells_counts_them(written):
    space = parsed(written)
    assert space.cells is not None
    if space.cells > 3000:
        return
    cells = list(space.grid())
    assert len(cells) == space.cells
    assert len({json.dumps(cell, sort_keys=True) for cell in cells}) == space.cells
    assert not any(map(space.faults, cells))
    _, points = proposals(space, "random", count=5)
    assert all(point in cells for point in points)


@given(written=spaces(), data=st.data())
def test_a_point_of_the_space_can_be_a_warm_start(written, data):
    space = parsed(written)
    _, points = proposals(space, "random", count=4, seed=data.draw(st.integers(0, 9)))
    different = [p for i, p in enumerate(points) if p not in points[:i]]
    found = []
    given_points = [{**p, "score": n} for n, p in enumerate(different)]
    warm = parse_points(dotted.load_yaml(json.dumps(given_points)), space, "points", {}, found)
    assert not found
    assert [(w.point, w.score) for w in warm] == [(p, n) for n, p in enumerate(different)]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", REALISTIC)
def test_every_proposal_of_a_realistic_space_is_a_valid_experiment(name, sampler):
    section, options = REALISTIC[name]
    method = method_of(section, **options)
    for point in proposals(method.space, sampler, count=25)[1]:
        experiment = method.experiment(point)
        if "stages" in name:
            server = experiment.server.build()
            server.prepare(experiment.rounds)
            assert server.ends[-1] == experiment.rounds == 40


@pytest.mark.parametrize(
    ("name", "drawn"),
    [("tied", {1}), ("conditional", {3, 4, 5}), ("stages", {6, 8, 10}), ("rates", {3, 4, 5})],
)
def test_how_much_is_drawn_depends_on_what_was_drawn(name, drawn):
    """Each count of parameters has a probability of 1/16 or more: one is missed with 2e-4."""
    section, options = REALISTIC[name]
    study, _ = proposals(method_of(section, **options).space, "random", count=150)
    assert {len(trial.params) for trial in study.trials} == drawn
