"""The machines of a cluster: each must hold the same code and the same data as this one."""

from __future__ import annotations

import platform
import socket
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from fltune.errors import ConfigError, last_line

PACKAGES = ("fltune", "torch", "lightning", "numpy")
"""A trial's numbers may depend on the version of each."""
PATIENCE_SECONDS = 60.0
"""Time that a machine has for its answer."""


def check_address(address: str, source: str = "ray.address") -> None:
    """Refuse an address that no search can run at, before Ray tries it for a minute.

    Args:
        address: of a cluster.
        source: where it was said.

    Raises:
        ConfigError: it is of Ray's client, or nothing listens there.
    """
    where = f"{source}: found {address!r}"
    if address.startswith("ray://"):
        raise ConfigError(
            f"{where}; a search keeps its logs where it is started, so start it on a machine of "
            "the cluster, with auto or HOST:PORT"
        )
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return  # auto: Ray looks for what runs on this machine
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"{where}; nothing answers there ({error}). Start a cluster: ray start --head"
        ) from error


def versions() -> dict[str, str]:
    """Return what this process runs, by name."""
    found = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "a checkout"  # on PYTHONPATH, not installed
    return found


def look(paths: Sequence[str]) -> dict[str, Any]:
    """Return, on one machine, its versions and which of some paths it lacks."""
    import fltune.runner  # noqa: F401 - all that a trial imports can be imported

    missing = [path for path in paths if not Path(path).exists()]
    return {"versions": versions(), "missing": missing}


def check_nodes(paths: Iterable[str]) -> None:
    """Have every machine of the cluster that Ray has joined look at itself.

    Args:
        paths: absolute, of files and folders that trials read.

    Raises:
        ConfigError: what each machine lacks, by its address.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(look)
    wanted = sorted(set(paths))
    asked = {}
    for node in nodes():
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked[node["NodeManagerAddress"]] = task.options(scheduling_strategy=there).remote(wanted)
    ours, problems = versions(), []
    for address, answer in asked.items():
        try:
            found = ray.get(answer, timeout=PATIENCE_SECONDS)
        except ray.exceptions.RayError as error:
            said = last_line(str(error)) or type(error).__name__
            problems.append(f"machine {address}: no trial can run there: {said}")
            continue
        problems += differences(address, ours, found)
    if problems:
        raise ConfigError(problems)


def differences(address: str, ours: Mapping[str, str], found: Mapping[str, Any]) -> list[str]:
    """Return what a machine has otherwise than this one, a sentence each.

    Args:
        address: of the machine.
        ours: the versions here.
        found: what :func:`look` returned there.
    """
    wrong = [
        f"machine {address}: {name} is {found['versions'].get(name)} there and {version} here; "
        "install the same"
        for name, version in ours.items()
        if found["versions"].get(name) != version
    ]
    wrong += [
        f"machine {address}: {path} does not exist there; put the data at the same path on every "
        "machine, or on a shared disk"
        for path in found["missing"]
    ]
    return wrong


def nodes() -> list[dict[str, Any]]:
    """Return the living machines of the cluster, as Ray describes them."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]
