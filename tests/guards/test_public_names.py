"""The public lists are sorted, complete and loaded from where they say."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import pytest

import debugtaps
import tapsect


def modules() -> Iterator[str]:
    for package in (debugtaps, tapsect):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith("__main__"):
                yield found.name


def source(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    with open(module.__file__, encoding="utf-8") as file:
        return ast.parse(file.read())


def type_checking_names(module: ModuleType) -> set[str]:
    for node in source(module).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            imports = [n for n in node.body if isinstance(n, ast.ImportFrom)]
            return {alias.asname or alias.name for n in imports for alias in n.names}
    return set()


def test_the_list_of_debugtaps_is_what_it_loads() -> None:
    loaded = {name for names in debugtaps._HOMES.values() for name in names.split()}
    assert set(debugtaps.__all__) == loaded == type_checking_names(debugtaps)


def test_the_list_of_tapsect_is_what_it_loads() -> None:
    assert set(tapsect.__all__) == {*tapsect._HOMES, "__version__"}
    assert type_checking_names(tapsect) == set(tapsect._HOMES)


def test_no_public_name_is_that_of_a_submodule() -> None:
    # `from debugtaps import x` gives the submodule once anything has imported it.
    for package in (debugtaps, tapsect):
        submodules = {found.name for found in pkgutil.iter_modules(package.__path__)}
        assert submodules.isdisjoint(package.__all__)


@pytest.mark.parametrize("name", debugtaps.__all__)
def test_every_public_name_of_debugtaps_can_be_loaded(name: str) -> None:
    assert getattr(debugtaps, name) is not None
    assert name in dir(debugtaps)


@pytest.mark.parametrize("name", tapsect.__all__)
def test_every_public_name_of_tapsect_can_be_loaded(name: str) -> None:
    assert getattr(tapsect, name) is not None


@pytest.mark.parametrize("package", [debugtaps, tapsect])
def test_other_names_are_attribute_errors(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


EXTRAS = ("openvino", "torch", "onnxscript", "onnx2fx", "sqlalchemy", "psutil", "bokeh", "jinja2")
"""Packages of extras that modules import at their top."""


def order(name: str) -> tuple[int, str]:
    """Constants first, then classes, then functions, as import sorters do."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


@pytest.mark.parametrize("name", list(modules()))
def test_every_list_is_sorted_and_its_names_exist(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] in EXTRAS:
            pytest.skip(f"the extra that installs {missing.name} is not there")
        raise
    public = getattr(module, "__all__", None)
    if public is None:
        return
    assert list(public) == sorted(set(public), key=order)
    if name not in ("debugtaps", "tapsect"):
        assert [each for each in public if not hasattr(module, each)] == []
