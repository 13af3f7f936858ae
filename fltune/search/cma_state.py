"""The state of a CMA-ES as plain values.

Optuna pickles its CMA-ES into a trial's attributes. A record is a file that anybody may have
written, and reading a pickle runs code; so a record holds numbers, and the pickle is made anew from
them when Optuna needs it.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np

PREFIXES = ("cma:", "sepcma:", "cmawm:")
CLASSES = ("CMA", "SepCMA", "CMAwM")
OPTIMIZER = "optimizer"
"""Optuna cuts the pickle into pieces: ``cma:optimizer:0``, ``cma:optimizer:1``, ..."""


def to_plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's system attributes with the pickle in them turned into plain values.

    They must be of a trial that this process has just asked for.
    """
    plain = {k: v for k, v in attrs.items() if OPTIMIZER not in k}
    for prefix in PREFIXES:
        pieces = [k for k in attrs if k.startswith(f"{prefix}{OPTIMIZER}:")]
        if pieces:
            pieces.sort(key=lambda key: int(key.rpartition(":")[2]))
            text = "".join(attrs[key] for key in pieces)
            plain[prefix + OPTIMIZER] = _encode(pickle.loads(bytes.fromhex(text)))
    return plain


def from_plain(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the system attributes that Optuna expects; a pickle among the values is left out.

    Raises:
        ValueError: the plain values are not those of a CMA-ES.
    """
    attrs = {k: v for k, v in plain.items() if OPTIMIZER not in k}
    for prefix in PREFIXES:
        if prefix + OPTIMIZER in plain:
            optimizer = _decode(plain[prefix + OPTIMIZER])
            attrs[f"{prefix}{OPTIMIZER}:0"] = pickle.dumps(optimizer).hex()
    return attrs


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {
            "array": value.ravel().tolist(),
            "shape": list(value.shape),
            "dtype": value.dtype.name,
        }
    if isinstance(value, np.generic):
        return value.item()
    if type(value).__name__ not in CLASSES:
        return value
    state = value.__reduce_ex__(2)[2]
    if "_funhist_values" in state:  # for restarts, which Optuna has not; never filled before use
        state = {**state, "_funhist_values": np.zeros_like(state["_funhist_values"])}
    return {"class": type(value).__name__, "state": {k: _encode(v) for k, v in state.items()}}


def _decode(plain: Any) -> Any:
    if not isinstance(plain, Mapping):
        return plain
    if "array" in plain:
        return np.array(plain["array"], dtype=plain["dtype"]).reshape(plain["shape"])
    if plain.get("class") not in CLASSES:
        raise ValueError(f"found {plain.get('class')!r}; must be one of {', '.join(CLASSES)}")
    import cmaes

    made = object.__new__(getattr(cmaes, plain["class"]))
    state = {k: _decode(v) for k, v in plain["state"].items()}
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:
        made.__dict__.update(state)
    return made
