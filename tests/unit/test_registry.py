"""Words of the command line become engines, or an error that names the nearest ones."""

import importlib.metadata
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from debugtaps.engines import registry
from debugtaps.engines.registry import BUILTINS, names, parse_options, resolve
from debugtaps.errors import SpecError


@pytest.mark.parametrize("name", BUILTINS)
def test_every_builtin_names_a_file_that_is_there(name: str) -> None:
    kind, where, cls = resolve(name).target
    assert kind == "builtin"
    assert f"class {cls}" in Path(where).read_text(encoding="utf-8")


def test_a_file_is_resolved_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("class Mine: ...", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert resolve("mine.py:Mine").target == ("file", str(tmp_path / "mine.py"), "Mine")


def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(SpecError, match=r"no file nowhere/mine\.py"):
        resolve("nowhere/mine.py:Mine")


def test_a_module_is_not_imported_here() -> None:
    spec = resolve("no_such_package.engine:Outer.Inner")
    assert spec.target == ("module", "no_such_package.engine", "Outer.Inner")


def test_options_are_kept_and_cannot_be_changed_from_outside() -> None:
    given = {"providers": ["A"]}
    spec = resolve("ort", given)
    given["providers"] = []
    assert spec.options == {"providers": ["A"]}


def test_an_option_that_cannot_travel_is_refused_here() -> None:
    with pytest.raises(SpecError, match="plain JSON"):
        resolve("ort", {"providers": {"a", "b"}})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = EntryPoints(
        [
            EntryPoint("zoo", "zoo.engine:Zoo", "tapsect.engines"),
            EntryPoint("broken", "zoo.engine", "tapsect.engines"),
            EntryPoint("ort", "zoo.engine:Impostor", "tapsect.engines"),
        ]
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found.select(group=group))


@pytest.mark.usefixtures("installed")
class TestEntryPoints:
    def test_are_found(self) -> None:
        assert resolve("zoo").target == ("module", "zoo.engine", "Zoo")

    def test_are_listed(self) -> None:
        assert {"zoo", "ort", "planted"} <= set(names())

    def test_do_not_replace_a_builtin(self) -> None:
        assert resolve("ort").target[2] == "OrtEngine"

    def test_without_a_class_are_refused(self) -> None:
        with pytest.raises(SpecError, match="must name module:Class"):
            resolve("broken")


def test_an_unknown_name_gives_the_nearest_and_the_forms() -> None:
    with pytest.raises(SpecError, match=r"did you mean ort") as seen:
        resolve("ortt")
    assert "file.py:Class" in str(seen.value)
    assert "ort-reference" in str(seen.value)


@pytest.mark.parametrize("spec", ["", ":", "a b:C", "file.py:", "file.py:not a class", "x.y"])
def test_nonsense_is_a_spec_error(spec: str) -> None:
    with pytest.raises(SpecError):
        resolve(spec)


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("k=1", 1),
        ("k=true", True),
        ("k=1e-3", 1e-3),
        ('k=["a"]', ["a"]),
        ("k=A,B", "A,B"),
        ("k=", ""),
        ("k=a=b", "a=b"),
        ("k={bad", "{bad"),
    ],
)
def test_option_values_are_json_when_they_parse(pair: str, value: object) -> None:
    assert parse_options([pair]) == {"k": value}


@pytest.mark.parametrize("pair", ["k", "=v", " =v"])
def test_an_option_without_key_or_sign_is_named(pair: str) -> None:
    with pytest.raises(SpecError, match="key=value"):
        parse_options([pair])


def test_nothing_heavy_is_imported_in_the_parent() -> None:
    code = (
        "import sys; from debugtaps.engines import registry, host; registry.names();"
        "assert not {'onnxruntime', 'onnx.reference'} & set(sys.modules)"
    )
    root = Path(registry.__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(root)})
