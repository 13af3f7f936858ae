"""The search: Ray Tune runs trials, Optuna proposes values, fresh seeds confirm the winners.

``fltune.search(...)`` starts one. The name is this package's too, so the package can be called:
whichever of the two Python finds under it, ``fltune.search("file.yaml")`` is a search.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from fltune.garbage import loading

with loading():  # the modules here need it all the same
    import lightning  # noqa: F401


class _CallablePackage(ModuleType):
    """A package that passes a call on to the function of its name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Tune the methods of a search file; see :func:`fltune.search.search.search`."""
        from fltune.search.search import search

        return search(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
