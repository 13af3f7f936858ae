"""Names to classes: the short names of config files, and any import path of the user's own.

A :class:`Registry` holds ``name -> "module:Class"`` and imports on use, so that listing names
costs nothing and ``import fltune`` stays light. What is somebody's own may fail to import, or be
something else; it is looked at here, once for all kinds.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from fltune.errors import nearest


class UnknownNameError(LookupError):
    """A name that is neither registered nor an import path to a component of its kind."""


class Registry:
    """The known components of one kind.

    Args:
        kind: what they are, for messages: ``"algorithm"``.
        entries: short name to ``"module:attribute"``.
        aliases: other names for a registered one.
        bases: ``"module:Class"`` of what an import path must lead to a subclass of, one of them;
            the first is the one to extend. None: anything.
    """

    def __init__(
        self,
        kind: str,
        entries: Mapping[str, str],
        aliases: Mapping[str, str] | None = None,
        bases: tuple[str, ...] = (),
    ) -> None:
        self.kind = kind
        self.entries = dict(entries)
        self.aliases = dict(aliases or {})
        self.bases = bases

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.entries or name in self.aliases

    def load(self, name: str) -> Any:
        """Return the class behind a short name or an import path ``package.module:Class``.

        Raises:
            UnknownNameError: the name is not registered (the nearest one is named); or the import
                path does not lead anywhere (the reason is named, with file and line), or to no
                component of this kind, or to one that is not complete or would lose its
                hyperparameters.
        """
        path = self.entries.get(self.aliases.get(name, name), name)
        if ":" not in path:
            known = ", ".join(self.entries)
            near = nearest(name, [*self.entries, *self.aliases])
            raise UnknownNameError(
                f"unknown {self.kind} {name!r}{near}; known: {known}; or an import path such as "
                "my_package.module:Name"
            )
        try:
            found = _imported(path)
        except (Exception, SystemExit) as error:  # a module that is run may raise anything
            raise UnknownNameError(
                f"{self.kind} {name!r} cannot be imported: {_reason(error)}"
            ) from error
        if self.bases and path == name:
            self._check(name, found)
        return found

    def _check(self, name: str, found: Any) -> None:
        """Refuse what is of another kind, and a class whose fields would be lost."""
        bases = tuple(_imported(base) for base in self.bases)
        if not (inspect.isclass(found) and issubclass(found, bases)):
            base = self.bases[0].replace(":", ".")
            raise UnknownNameError(f"{name} is no {self.kind}; subclass it from {base}")
        for cls in found.__mro__:
            if issubclass(cls, bases[0]) and cls is not bases[0] and _loses_fields(cls):
                model = _imported(next(iter(self.entries.values())))
                how = "frozen=True" if model.__dataclass_params__.frozen else "eq=False"
                raise UnknownNameError(
                    f"{cls.__name__} is no dataclass: write @dataclass({how}) above it"
                )
        if issubclass(found, bases[0]) and (taken := _taken(found, bases[0])):
            raise UnknownNameError(
                f"{found.__name__} has a hyperparameter {taken!r}, and {bases[0].__name__} uses "
                "that name itself; give it another one"
            )
        if lacking := ", ".join(sorted(getattr(found, "__abstractmethods__", ()))):
            raise UnknownNameError(f"{found.__name__} is not complete: it must define {lacking}")


def _imported(path: str) -> Any:
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _reason(error: BaseException) -> str:
    """Return what a failed import says, after the file and line of the module that failed."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    modules = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.name == "<module>" and not frame.filename.startswith("<frozen")
    ]
    if not modules:  # none was run: there is no such module or attribute
        return str(error)
    last = modules[-1]
    return f"{last.filename}, line {last.lineno}: {type(error).__name__}: {error}"


def _taken(cls: type, base: type) -> str:
    """Return the name of a hyperparameter that stands for something else in the base, or nothing.

    A run would overwrite it, or call it.
    """
    hers = {f.name for f in dataclasses.fields(base)} if dataclasses.is_dataclass(base) else set()
    used = {name for above in base.__mro__ for name in vars(above)} - hers
    used.update(getattr(base, "of_a_run", ()))
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
    return next((f.name for f in fields if "meta" in f.metadata and f.name in used), "")


def _loses_fields(cls: type) -> bool:
    """Whether a class declares fields with values, as a dataclass does, and is none itself.

    It has inherited a constructor that knows nothing of them. A name with an underscore is no
    hyperparameter.
    """
    own = vars(cls)
    if "__dataclass_fields__" in own or "__init__" in own:
        return False
    return any(
        name in own and not name.startswith("_") and "ClassVar" not in str(hint)
        for name, hint in inspect.get_annotations(cls).items()
    )
