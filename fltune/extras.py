"""Packages that only some components need: imported on use, and asked for by name."""

from __future__ import annotations

import importlib
from typing import Any

from fltune.errors import ConfigError


def require(package: str, extra: str, what: str) -> Any:
    """Return a package of one of fltune's extras.

    Args:
        package: what to import.
        extra: the extra that installs it, as in ``pip install 'fltune[text]'``.
        what: the component that needs it, for the message.

    Raises:
        ConfigError: it is not installed, or cannot be imported; the reason is named.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"{what} needs the package {package} ({error}); pip install 'fltune[{extra}]'"
        ) from error
