"""How many trials run at once on the machines there are."""

from __future__ import annotations

from collections.abc import Mapping

from fltune.errors import ConfigError
from fltune.federation.cores import allowed
from fltune.search.resources import Resources
from fltune.search.settings import Settings


def resources_here() -> dict[str, float]:
    """Return the cores and GPUs that this process may use, in Ray's names."""
    import torch

    return {"CPU": float(allowed()), "GPU": float(torch.cuda.device_count())}


def concurrency(settings: Settings, *machines: Mapping[str, float]) -> int:
    """Return how many trials fit at once.

    Args:
        settings: says what one trial gets.
        machines: cores and GPUs of each, in Ray's names. A trial runs on one machine, and a share
            of a GPU is of one GPU.

    Raises:
        ConfigError: not even one fits; a search would wait for ever.
    """
    wanted = {"CPU": settings.resources.cpus, "GPU": settings.resources.gpus}
    most = {name: max(m.get(name, 0.0) for m in machines) for name in wanted}
    where = "" if len(machines) == 1 else f" on the largest of {len(machines)} machines"
    short = [
        f"resources.{name.lower()}s: found {amount:g} per trial; there are {most[name]:g}{where}"
        for name, amount in wanted.items()
        if amount > most[name]
    ]
    if short:
        raise ConfigError(short)
    fits = sum(_fit(machine, settings.resources) for machine in machines)
    if not fits:
        raise ConfigError(
            f"resources: found cpus: {wanted['CPU']:g}, gpus: {wanted['GPU']:g} per trial; no "
            "machine has both"
        )
    return min(fits, settings.search.concurrent or fits)


def _fit(machine: Mapping[str, float], resources: Resources) -> int:
    """Return how many trials one machine takes at once."""
    fits = _times(resources.cpus, machine.get("CPU", 0.0))
    gpus = machine.get("GPU", 0.0)
    if not resources.gpus:
        return fits
    if resources.gpus < 1:
        return min(fits, int(gpus) * _times(resources.gpus, 1.0))
    return min(fits, _times(resources.gpus, gpus))


def _times(amount: float, available: float) -> int:
    """Return how often an amount is there; 0.28 is there 25 times in 7, whatever floats say."""
    return int(available / amount + 1e-6)
