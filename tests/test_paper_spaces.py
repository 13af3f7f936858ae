"""The papers' experiments as search files: all there, as printed, and they run."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import fltune
from fltune import dotted
from fltune.report.spaces import space_entry, space_files
from fltune.reproduce.claims import read_claims
from fltune.search.config import SearchConfig

ROOT = Path(__file__).parents[1]
FOLDERS = [ROOT / "search_spaces" / name for name in ("papers", "mini")]
FILES = {path.stem: path for folder in FOLDERS for path in space_files(folder)}
COMPUTED = {stem for stem, path in FILES.items() if "computes" in dotted.read_yaml(path)}
CONFIGS = {s: SearchConfig.read(path) for s, path in FILES.items() if s not in COMPUTED}
GRIDS = ROOT.parent / "shared" / "spec" / "paper_grids.yaml"

NUMBERS = {
    "cycp": "fig2 fig3 fig4 fig5 fig6",
    "fedsum": "fig1a fig1b fig5 fig6 fig7 fig8 fig9 fig10 fig11 fig12 fig13 fig14a fig14b",
    "fedcom": "fig6 fig8 fig9a fig9b",
    "fedcdr": "tab1 tab2 tab3 tab4 tab8 tab10 tab11 tab12",
    "fedgm": "fig1ab fig1cd fig2 fig3 fig4 fig5 fig6 fig7 fig8 fig9",
}
WITHOUT_TRAINING = {"fedsum": "fig4", "fedcom": "fig7", "fedcdr": "tab5 tab6 tab7"}
MINI = (
    "fedgm-stability fedgm-stability-fmnist fedgm-grid fedgm-alpha fedgm-multistage fedgm-async "
    "cycp-rate cycp-curves cycp-digits fedsum-main fedsum-comm fedsum-cases fedsum-p fedsum-family "
    "fedsum-biased fedsum-resnet fedsum-bert fedcom-hetero fedcom-cosine fedcom-topk fedcom-bits "
    "fedcom-tau fedcdr-synthetic fedcdr-participation fedcdr-epochs fedcdr-stragglers "
    "fedcdr-coverage fedcdr-10k"
)
SPECIFICATION = ROOT.parent / "shared" / "spec" / "experiments.md"


def experiments(folder):
    return {space_entry(p)["experiment"] for p in space_files(ROOT / "search_spaces" / folder)}


def trials(name, *, method=None):
    """Return how many trials are proposed, of one method or of all; taken-over values are none."""
    config = CONFIGS[name]
    chosen = [
        m
        for m in config.methods.values()
        if method in (None, m.name, m.scenario.get("method")) and m.inherit is None
    ]
    return sum(m.trials(config.settings.search) for m in chosen)


def test_every_experiment_has_a_file_and_only_those():
    for paper, numbers in NUMBERS.items():
        every = f"{numbers} {WITHOUT_TRAINING.get(paper, '')}".split()
        wanted = {f"{paper}-{number}" for number in every}
        assert experiments(f"papers/{paper}") - {"fedsum-grid"} == wanted


def test_what_trains_nothing_says_what_it_computes():
    wanted = {f"{p}-{n}" for p, numbers in WITHOUT_TRAINING.items() for n in numbers.split()}
    wanted |= {"mini-cycp-rate", "mini-fedcom-cosine", "mini-fedcdr-coverage"}
    assert {space_entry(FILES[stem])["experiment"] for stem in COMPUTED} == wanted


def test_every_mini_variant_is_named_as_its_file():
    assert experiments("mini") == {path.stem for path in space_files(FOLDERS[1])}
    assert experiments("mini") == {f"mini-{name}" for name in MINI.split()}


@pytest.mark.skipif(not SPECIFICATION.exists(), reason="the specification is not here")
def test_every_id_of_the_specification_is_listed():
    text = SPECIFICATION.read_text(encoding="utf-8")
    overview = text[text.index("## 1 ") : text.index("## 2 ")]
    named = set(
        re.findall(r"(?:cycp|fedsum|fedcom|fedcdr|fedgm)-(?:fig|tab)[0-9]+[a-d]*", overview)
    )
    listed = set().union(*(experiments(f"papers/{paper}") for paper in NUMBERS))
    assert len(named) > 30
    assert named - listed == set()


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_what_it_is_and_what_it_costs(name):
    path, verb = FILES[name], "reproduce" if name in COMPUTED else "search"
    entry = space_entry(path)
    assert "problem" not in entry
    assert entry["paper"]
    assert 20 < len(entry["summary"]) <= 100
    assert name in COMPUTED or entry["trials"] or entry["confirmations"]
    what = name if name in COMPUTED else path.relative_to(ROOT)
    assert path.read_text(encoding="utf-8").startswith(f"# python -m fltune {verb} {what}\n")


def grid_of(paper, name):
    papers = yaml.safe_load(GRIDS.read_text(encoding="utf-8"))["papers"]
    return next(g for g in papers[paper]["grids"] if g["id"] == name)


@pytest.mark.skipif(not GRIDS.exists(), reason="the specification is not here")
def test_grids_have_as_many_runs_as_the_specification_prints():
    cycp = grid_of("000-cycp", "cycp-grid")
    for name in cycp["experiments"]:
        assert trials(name, method="SGD") == cycp["runs"]
        assert trials(name) == cycp["recommended"]["runs_per_benchmark_if_per_procedure"]
    fedsum = grid_of("001-fedsum", "fedsum-grid")
    assert trials("fedsum-grid") == fedsum["runs"]
    assert CONFIGS["fedsum-grid"].base["rounds"] == fedsum["rounds"]
    fedgm = grid_of("004-fedgm", "fedgm-grid")
    for name, runs in fedgm["runs_by_figure"].items():
        assert trials(name) == runs
    for method, runs in fedgm["runs_by_method"].items():
        assert trials("fedgm-fig1ab", method=method) == runs


@pytest.mark.parametrize(
    ("name", "settings"),
    [("tab1", 3), ("tab2-mnist", 2), ("tab2-cifar", 4), ("tab10", 3), ("tab12-cifar", 4)],
)
def test_fedcdr_has_a_hundred_runs_per_setting_for_each_half(name, settings):
    per_method = {"CR+FedAvg": 4, "CR+FedProx": 16, "CR+SCAFFOLD": 4, "CR+FedDC": 12, "FedCDR": 64}
    for method, runs in per_method.items():
        assert trials(f"fedcdr-{name}", method=method) == runs * settings
    halves = 1 if name in ("tab1", "tab2-mnist", "tab2-cifar") else 2
    assert trials(f"fedcdr-{name}") == 100 * settings * halves


def test_what_is_tuned_once_is_taken_over_by_the_other_cells():
    assert trials("fedsum-fig1a") == trials("fedsum-fig1a", method="FedAvg") == 4
    assert trials("fedsum-fig1a-fair") == 4 * 8 * 9
    assert trials("fedcdr-tab3") == 64 * 2
    assert trials("fedcdr-tab4") == 64 * 2 * 2
    assert trials("fedcdr-tab8") == 84 * 2
    runs = {"fig9": 12, "fig10": 18, "fig11": 27, "fig12": 6, "fig13": 2, "fig14a": 15, "fig14b": 6}
    untuned = {name: CONFIGS[f"fedsum-{name}"] for name in runs}
    assert {name: len(config.methods) for name, config in untuned.items()} == runs


def test_the_fedsum_figures_are_one_set_of_runs_with_rates_found_once_in_500_rounds():
    config = CONFIGS["fedsum-fig1a"]
    source = "FedAvg @ MNIST, P1"
    assert len(config.methods) == 8 * 3 * 3
    for name, method in config.methods.items():
        inherited = method.inherit
        assert (inherited.source if inherited else name) == source
        assert method.trial_rounds(config.settings.search) == 500
        assert method.experiment(method.first_values()).rounds == 2000
    for view in ("fig1b", "fig5", "fig6", "fig7", "fig8"):
        other = CONFIGS[f"fedsum-{view}"]
        assert {n: (m.raw, m.to_yaml()) for n, m in other.methods.items()} == {
            n: (m.raw, m.to_yaml()) for n, m in config.methods.items()
        }
        assert other.settings.search == config.settings.search


@pytest.mark.parametrize("name", CONFIGS)
def test_where_rounds_to_a_target_are_counted_every_round_is_evaluated(name):
    said = read_claims(FILES[name])
    if any(one.take == "rounds" for one in [*said.claims.values(), *said.numbers.values()]):
        assert {m.raw.get("eval_every", 1) for m in CONFIGS[name].methods.values()} == {1}


def test_a_compression_ratio_of_one_is_fedgate():
    method = CONFIGS["fedcom-fig8"].methods["FedCOMGATE @ MNIST, C_r 1.0"]
    compressor = method.experiment(method.first_values()).compression.build()
    assert (compressor.bound(100), compressor.bits(100)) == (0.0, 3200.0)


@pytest.mark.parametrize("name", ["fedgm-fig1ab", "cycp-fig2"])
def test_a_replica_that_selects_by_test_data_differs_in_that_alone(name):
    literal, fair = CONFIGS[f"{name}-by-test"], CONFIGS[name]
    assert literal.settings.search == fair.settings.search
    for key, method in literal.methods.items():
        raw = dotted.merge(method.raw, {})
        assert raw["data"].pop("val_from") == "test"
        assert (raw, method.to_yaml()) == (fair.methods[key].raw, fair.methods[key].to_yaml())
        (caution,) = method.experiment(method.first_values()).cautions()
        assert caution.startswith("data.val_from: ")


# Two rounds of a trial of every file. Data sets that are downloads are replaced by noise of their
# shape, and a client makes one step on two samples.

GREY = ("mnist", "fashion_mnist", "emnist", "emnist_by_writer")
CLASSES = {"emnist": 62, "cifar100": 100}
FEWER = {"data.clients": 500, "participation.per_round": 5}
SLOW = ("resnet18", "vgg11")


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("noise"), {}

    def section(data):
        """Return a data section of noise for one that needs files, with the same clients."""
        name = data["name"]
        if name not in made:
            made[name] = folder / f"{name}.npz"
            rng, n = np.random.default_rng(0), 2200
            shape = (1, 28, 28) if name in GREY else (3, 32, 32)
            x = rng.standard_normal((n, *shape), dtype=np.float32)
            y = np.arange(n) % CLASSES.get(name, 10)
            np.savez(made[name], x=x, y=y, clients=np.arange(n) // 22)
        kept = ("partition", "val_fraction")
        own = {k: data[k] for k in kept if k in data}
        return {"name": "npz", "path": str(made[name]), **own}

    def sentences(data):
        root = folder / "SST-2"
        root.mkdir(exist_ok=True)
        lines = "".join(f"film number {i}\t{i % 2}\n" for i in range(100))
        for file in ("train.tsv", "dev.tsv"):
            (root / file).write_text(f"sentence\tlabel\n{lines}", encoding="utf-8")
        own = {k: v for k, v in data.items() if k != "limit"}
        return {**own, "root": str(folder), "tokenizer": "words", "vocab_size": 100}

    def choose(data):
        if data["name"] in ("digits", "synthetic"):
            return dict(data)
        return sentences(data) if data["name"] == "sst2" else section(data)

    return choose


def shrunk(raw, choose):
    """Return the raw experiment on small data, with few clients that do little."""
    data = choose(raw["data"])
    by_writer = data.get("partition", {}).get("kind") == "natural" and data["name"] == "npz"
    clients = min(raw["data"]["clients"], 100 if by_writer else FEWER["data.clients"])
    small = dotted.merge(raw, {"rounds": 2, "eval_every": 2})
    small["data"] = {**data, "clients": clients}
    per_round = small["participation"].get("per_round")
    if per_round is not None:
        small["participation"]["per_round"] = min(per_round, FEWER["participation.per_round"])
    client = {k: v for k, v in small["client"].items() if k != "epochs"}
    small["client"] = {**client, "steps": 1, "batch_size": 2}
    if small["server"]["name"] == "multistage":
        small["server"]["stage_ends"] = None
        small["rounds"] = len(small["server"]["lrs"])
    if small["model"]["name"] == "bert":
        small["model"] = {"name": "bert", "pretrained": None, "config": "tiny", "vocab_size": 100}
    return small


def runs():
    """Yield every file's methods, each in its last cell; files that view the same runs once."""
    views = {f"fedsum-fig{n}" for n in ("1b", "5", "6", "7", "8", "1a-fair")}
    views |= {"mini-fedsum-comm", "fedgm-fig1ab-by-test", "cycp-fig2-by-test"}
    for stem, config in CONFIGS.items():
        if stem in views:
            continue
        last = {m.scenario.get("method", name): name for name, m in config.methods.items()}
        chosen = last.values() if stem in EVERY_METHOD else list(last.values())[-1:]
        for name in chosen:
            raw = config.methods[name].raw
            heavy = raw["model"]["name"] in SLOW if isinstance(raw.get("model"), dict) else False
            yield pytest.param(
                stem, name, id=f"{stem}-{name}", marks=[pytest.mark.slow] if heavy else []
            )


EVERY_METHOD = (
    "cycp-fig2",
    "fedsum-fig1a",
    "fedcom-fig6",
    "fedcdr-tab10",
    "fedgm-fig1cd",
    "fedgm-fig2",
    "mini-fedcom-hetero",
)


@pytest.mark.parametrize(("stem", "name"), list(runs()))
def test_two_rounds_run(stem, name, stand_in):
    method = CONFIGS[stem].method(name)
    raw = method.experiment(method.first_values()).as_dict()
    if raw["model"]["name"] == "bert":
        pytest.importorskip("transformers")
    experiment = fltune.Experiment.parse(shrunk(raw, stand_in))
    result = fltune.run(experiment, test=False)
    assert (result.rounds, result.stop_reason.value) == (experiment.rounds, "completed")
    assert np.isfinite(result.metrics["val/loss"])
