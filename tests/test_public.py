"""The public names of the package."""

import inspect
import subprocess
import sys

import pytest

import fltune
from fltune.errors import ConfigError


@pytest.mark.parametrize("name", [n for n in fltune.__all__ if not n.startswith("_")])
def test_every_public_name_is_there(name):
    assert callable(getattr(fltune, name))


def test_what_goes_on_with_a_search_is_public():
    """As the commands of these names; each is loaded on use."""
    import fltune.search.search as commands

    for name in ("resume", "extend", "compare", "explain", "sync"):
        assert name in fltune.__all__
        assert getattr(fltune, name) is getattr(commands, name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'serch'"):
        fltune.serch  # noqa: B018


def test_search_is_called_whether_its_package_was_imported_or_not():
    """``load`` imports a module of the package, which takes the function's place as attribute."""
    import fltune.search.config

    with pytest.raises(ConfigError, match="cannot be read"):
        fltune.search("no such file.yaml")
    code = "import fltune; fltune.search('no such file.yaml')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ConfigError: no such file.yaml: cannot be read" in ended.stderr
    assert "file" in (inspect.getdoc(type(fltune.search).__call__) or "")
