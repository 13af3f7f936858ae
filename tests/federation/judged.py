"""A small run that is judged client by client, each by samples that it holds out itself."""

import small_digits

RAW = {
    **small_digits.RAW,
    "data": {**small_digits.RAW["data"], "val_fraction": 0.2, "val_from": "clients"},
    "client": {"lr": 0.2},
}


def changed(data=None, **changes):
    """Return it with other sections or values, and changes of its data."""
    return {**RAW, **changes, "data": {**changes.get("data", RAW["data"]), **(data or {})}}
