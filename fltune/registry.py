"""Names to classes: the short names of config files, and any import path of the user's own.

A :class:`Registry` holds ``name -> "module:Class"`` and imports on use, so that listing names
costs nothing and ``import fltune`` stays light.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from fltune.errors import nearest


class UnknownNameError(LookupError):
    """A name that is neither registered nor an import path that works."""


class Registry:
    """The known components of one kind.

    Args:
        kind: what they are, for messages: ``"algorithm"``.
        entries: short name to ``"module:attribute"``.
        aliases: other names for a registered one.
    """

    def __init__(
        self, kind: str, entries: Mapping[str, str], aliases: Mapping[str, str] | None = None
    ) -> None:
        self.kind = kind
        self.entries = dict(entries)
        self.aliases = dict(aliases or {})

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries or name in self.aliases

    def load(self, name: str) -> Any:
        """Return the class behind a short name or an import path ``package.module:Class``.

        Raises:
            UnknownNameError: the name is not registered (the nearest one is named), or the import
                path does not lead anywhere (the reason is named).
        """
        path = self.entries.get(self.aliases.get(name, name), name)
        if ":" not in path:
            known = ", ".join(self.entries)
            near = nearest(name, [*self.entries, *self.aliases])
            raise UnknownNameError(
                f"unknown {self.kind} {name!r}{near}; known: {known}; or an import path such as "
                "my_package.module:Name"
            )
        module, _, attribute = path.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise UnknownNameError(f"{self.kind} {name!r} cannot be imported: {error}") from error
