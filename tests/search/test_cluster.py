"""A search on two machines: here two of Ray's nodes, with addresses and folders of their own."""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from fltune.errors import ConfigError
from fltune.search.config import SearchConfig
from fltune.search.nodes import check_address, differences, look, versions
from fltune.search.preparation import make_absolute, paths_of

CHECKOUT = str(Path(__file__).parents[2])


def free_port():
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core, with a token of their own; yields what a user there sets.

    A node's working directory holds nothing of ours.
    """
    folder = Path(tempfile.mkdtemp(prefix="fl"))  # a socket's path must be short
    (folder / "token").write_text(secrets.token_hex(32))
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token")}
    address = f"127.0.0.1:{free_port()}"
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    size = ["--num-cpus", "1", "--object-store-memory", str(80 * 2**20)]
    head = ["--head", "--port", address.split(":")[1], "--include-dashboard", "false"]
    nodes = {
        "127.0.0.1": [*head, "--temp-dir", str(folder / "ray")],
        "127.0.0.2": ["--address", address],
    }
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RAY_ADDRESS")}
    environment |= token
    started = []
    try:
        for own, arguments in nodes.items():
            (folder / own).mkdir()
            command = [*ray, *size, "--node-ip-address", own, *arguments]
            with (folder / f"{own}.log").open("w") as log:
                started.append(
                    subprocess.Popen(
                        command, cwd=folder / own, env=environment, stdout=log, stderr=log
                    )
                )
            wait_for(folder / f"{own}.log", "Ray runtime started")
        yield address, token
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30)
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(log, text):
    patience = time.monotonic() + 120
    while text not in log.read_text():
        if time.monotonic() > patience:
            pytest.fail(log.read_text())
        time.sleep(0.2)


def python(folder, *arguments, **environment):
    """Run Python in a folder, as a user of that machine does."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": CHECKOUT, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def file(tmp_path):
    """A search whose partition lies in a file beside it, named by a relative path."""
    owners = "\n".join(f"{sample},{sample % 10}" for sample in range(1000))
    (tmp_path / "owners.csv").write_text(f"sample,client\n{owners}\n")
    partition = {"kind": "file", "path": "owners.csv"}
    raw = {
        "experiment": {
            "data": {"name": "digits", "clients": 10, "partition": partition},
            "model": {"name": "mlp", "hidden": [16]},
            "participation": {"kind": "uniform", "per_round": 4},
            "rounds": 150,
            "eval_every": 50,
        },
        "methods": {
            "FedAvg": {
                "server": {"name": "fedavg"},
                "space": {"client.lr": {"grid": [0.05, 0.1, 0.2, 0.3, 0.4, 0.5]}},
            }
        },
        "search": {"confirm_seeds": 1},
    }
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(raw))
    return tmp_path / "two.yaml"


@pytest.mark.search
@pytest.mark.slow
def test_a_search_keeps_both_machines_busy(cluster, file):
    address, token = cluster
    where = f"ray.address={address}"
    search = ("-m", "fltune", "search", "two.yaml", "--name", "two", "--set", where)
    done = python(file.parent, *search, **token)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 at a time (1 core, 0 GPUs each) on 2 machines" in " ".join(done.stdout.split())
    logged = (file.parent / "mlruns/searches/two/trials.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in logged]
    assert [r["status"] for r in records] == ["complete"] * 7
    addresses = {r["node"].rpartition(" ")[2] for r in records}
    assert len(addresses) == 2  # the head may go by another address of this machine
    assert "(127.0.0.2)" in addresses


LOOK = """
import sys
from fltune.errors import ConfigError
from fltune.search import nodes
from fltune.search.settings import Settings
from fltune.search.ray_session import ray_session

here = nodes.versions()
nodes.versions = lambda: {**here, "torch": "1.0"}
with ray_session(Settings.model_validate({"ray": {"address": sys.argv[1]}})) as concurrent:
    try:
        nodes.check_nodes(sys.argv[2:])
    except ConfigError as error:
        print(concurrent, *error.problems, sep="\\n")
"""


@pytest.mark.search
@pytest.mark.slow
def test_what_each_machine_lacks_is_named(cluster, tmp_path):
    """The two share this disk and its packages; what is missing is missing on both."""
    address, token = cluster
    gone = tmp_path / "gone"
    done = python(tmp_path, "-c", LOOK, address, str(gone), str(tmp_path), **token)
    assert done.returncode == 0, done.stderr
    concurrent, *problems = done.stdout.splitlines()
    assert concurrent == "2"
    machines = [problem.split(": ")[0] for problem in problems]
    assert [machines.count(m) for m in set(machines)] == [2, 2]
    assert "machine 127.0.0.2" in machines
    for version, folder in (problems[:2], problems[2:]):
        assert "torch is " in version
        assert f"{gone} does not exist there" in folder


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("ray://10.0.0.1:10001", "start it on a machine of the cluster"),
        ("127.0.0.1:1", "nothing answers there"),
        ("127.0.0.1:70000", "nothing answers there"),
        ("[::1]:1", "nothing answers there"),
    ],
)
def test_an_address_at_which_no_search_can_run_is_refused(address, problem):
    with pytest.raises(ConfigError, match=problem) as caught:
        check_address(address)
    assert str(caught.value).startswith(f"ray.address: found {address!r}")


def test_an_address_that_listens_is_left_to_ray():
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:
        check_address(f"127.0.0.1:{server.getsockname()[1]}")
    check_address("auto")


@pytest.mark.parametrize("source", ["ray.address", "RAY_ADDRESS"])
def test_a_cluster_that_does_not_answer_is_refused_before_anything_is_written(
    source, file, call, monkeypatch
):
    monkeypatch.chdir(file.parent)
    said = [] if source == "RAY_ADDRESS" else ["--set", f"{source}=127.0.0.1:1"]
    if not said:
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    code, _, error = call("search", "two.yaml", *said)
    assert code == 2
    assert f"{source}: found '127.0.0.1:1'; nothing answers there" in error
    assert sorted(p.name for p in file.parent.iterdir()) == ["owners.csv", "two.yaml"]


def test_a_machine_says_what_it_runs_and_what_it_lacks(tmp_path):
    found = look([str(tmp_path), str(tmp_path / "gone")])
    assert found == {"versions": versions(), "missing": [str(tmp_path / "gone")]}
    assert set(versions()) == {"Python", "fltune", "torch", "lightning", "numpy"}


def test_differences_between_machines_are_sentences():
    ours = {"Python": "3.11.9", "torch": "2.14.1"}
    assert differences("10.0.0.2", ours, {"versions": ours, "missing": []}) == []
    theirs = {"versions": {"Python": "3.11.9", "torch": "2.13.0"}, "missing": ["/data"]}
    assert differences("10.0.0.2", ours, theirs) == [
        "machine 10.0.0.2: torch is 2.13.0 there and 2.14.1 here; install the same",
        "machine 10.0.0.2: /data does not exist there; put the data at the same path on every "
        "machine, or on a shared disk",
    ]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ("digits", []),
        ("mnist", ["data"]),  # a default is as relative as any
        ({"name": "mnist", "clients": 5}, ["data"]),
        ({"name": "mnist", "root": "sets"}, ["sets"]),
        (
            {"name": "mnist", "root": "/sets", "partition": {"kind": "file", "path": "p.json"}},
            ["/sets", "p.json"],
        ),
    ],
)
def test_every_path_that_a_worker_reads_is_absolute(tmp_path, monkeypatch, data, found):
    monkeypatch.chdir(tmp_path)
    raw = {
        "experiment": {"data": data},
        "methods": {"A": {"space": {"client.lr": {"grid": [0.1]}}}},
    }
    method = SearchConfig.parse(raw).methods["A"]
    make_absolute(method)
    assert paths_of(method) == [str(tmp_path / path) for path in found]
    method.experiment(method.first_values())  # it is still a config
