"""Large arrays cross in files that both ends map, and the files go, whatever happens."""

import gc
import os
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from debugtaps.engines import worker
from debugtaps.engines.crossing import file_behind, map_file
from debugtaps.engines.host import Build, Host
from debugtaps.engines.registry import resolve
from debugtaps.errors import EngineFailure

ENGINE = """
import os, resource, signal, sys, time
import numpy as np

MAIN = sys.modules["__main__"]
PUT = MAIN.Shelf.put


def longer(shelf, buffer):
    place = PUT(shelf, buffer)
    shelf.sizes[shelf.path] += 64
    return place


def behind(shelf, buffer):
    place = PUT(shelf, buffer)
    return place and [place[0], 1 << 40]


def elsewhere(shelf, buffer):
    if PUT(shelf, buffer) is None:
        return None
    shelf.sizes["/etc/passwd"] = os.stat("/etc/passwd").st_size
    return ["/etc/passwd", 0]


def killed(shelf, buffer):
    PUT(shelf, buffer)
    os.kill(os.getpid(), signal.SIGKILL)


def slow(shelf, buffer):
    place = PUT(shelf, buffer)
    time.sleep(60)
    return place


def full(shelf, buffer):
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 20, resource.RLIM_INFINITY))
    return PUT(shelf, buffer)


class Engine:
    def __init__(self, how=""):
        if how:
            MAIN.Shelf.put = globals()[how]

    def build(self, model, taps=()):
        return self

    def run(self, feeds):
        x = feeds["x"]
        if isinstance(feeds.get("write"), np.ndarray):
            x[...] = 0  # an engine may write in what it is given
        held = "cross-" in open("/proc/self/maps").read()
        return {"x": x + 1, "y": x * 2, "mapped": np.array(held)}

    def close(self):
        pass
"""
X = np.arange(1 << 20, dtype=np.float32).reshape(16, -1)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "room").mkdir()
    return tmp_path / "room"


class Maker:
    def __init__(self, folder: Path, room: Path) -> None:
        self.file, self.room, self.hosts = folder / "engine.py", room, list[Host]()
        self.file.write_text(textwrap.dedent(ENGINE), encoding="utf-8")

    def __call__(self, how: str = "", room: Path | None = None) -> Build:
        host = Host(resolve(f"{self.file}:Engine", {"how": how}), timeout=20.0)
        host.room = room or self.room
        self.hosts.append(host)
        return host.build(self.file)


@pytest.fixture
def make(tmp_path: Path, room: Path) -> Iterator[Maker]:
    maker = Maker(tmp_path, room)
    yield maker
    for host in maker.hosts:
        host.close()


def test_they_are_mapped_at_both_ends_and_go_with_their_last_array(make: Maker, room: Path) -> None:
    found = make().run({"x": X})
    np.testing.assert_array_equal(found["x"], X + 1, strict=True)
    np.testing.assert_array_equal(found["y"], X * 2, strict=True)
    assert found["mapped"]
    (file,) = room.iterdir()  # one for all arrays of the answer, none of the request
    assert [file_behind(found[n]) is not None for n in ("x", "y", "mapped")] == [True, True, False]
    part = found["y"][3:5].view(np.uint32)
    del found
    gc.collect()
    assert file.exists()
    np.testing.assert_array_equal(part.view(np.float32), X[3:5] * 2)
    del part
    gc.collect()
    assert list(room.iterdir()) == []


def test_what_came_in_a_file_is_lent_and_not_written_again(
    make: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = make()
    first = build.run({"x": X})
    monkeypatch.setattr(worker.Shelf, "put", lambda *_: pytest.fail("written again"))
    found = build.run({"x": first["y"][4:]})  # a part of a file
    np.testing.assert_array_equal(found["x"], X[4:] * 2 + 1, strict=True)


def test_an_engine_may_write_in_what_it_is_given_and_we_may_not(make: Maker) -> None:
    build = make()
    first = build.run({"x": X})
    found = build.run({"x": first["y"], "write": np.ones(1)})
    assert not found["y"].any()
    np.testing.assert_array_equal(first["y"], X * 2)
    with pytest.raises(ValueError, match="read-only"):
        first["y"][0] = 0


def test_residents_lie_in_files(make: Maker, room: Path) -> None:
    build = make()
    host = make.hosts[0]
    host.put("k", {"x": X})
    for _ in range(2):
        assert build.run(resident="k")["mapped"]
    gc.collect()
    assert list(room.iterdir()) == []


def test_an_array_that_is_turned_is_written_in_c_order(make: Maker) -> None:
    build = make()
    turned = build.run({"x": X})["y"].T
    np.testing.assert_array_equal(build.run({"x": turned})["x"], X.T * 2 + 1, strict=True)


@pytest.mark.parametrize("how", ["longer", "behind", "elsewhere"])
def test_an_answer_that_lies_about_its_file_is_a_failure(make: Maker, room: Path, how: str) -> None:
    build = make(how)
    with pytest.raises(EngineFailure, match="left a torn answer") as caught:
        build.run({"x": X})
    assert caught.value.kind == "crash"
    assert list(room.iterdir()) == []
    make.hosts[0].build(make.file)  # a fresh child


def test_a_child_that_dies_while_it_writes_leaves_nothing(make: Maker, room: Path) -> None:
    with pytest.raises(EngineFailure, match="SIGKILL"):
        make("killed").run({"x": X})
    assert list(room.iterdir()) == []


@pytest.mark.parametrize("ends", ["late", "interrupted"])
def test_a_call_that_is_given_up_leaves_nothing(
    make: Maker, room: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    build = make("slow")

    def interrupt() -> None:
        while not list(room.glob("*.in")):
            time.sleep(0.01)
        os.kill(os.getpid(), 2)

    if ends == "interrupted":
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            build.run({"x": X})
    else:
        with pytest.raises(EngineFailure, match="no answer"):
            build.run({"x": X}, timeout=0.5)
    assert list(room.iterdir()) == []


def test_where_nothing_can_be_written_the_pipe_takes_all(make: Maker, tmp_path: Path) -> None:
    found = make(room=tmp_path / "missing").run({"x": X})
    np.testing.assert_array_equal(found["y"], X * 2, strict=True)
    assert not found["mapped"]
    assert file_behind(found["y"]) is None


def test_what_a_full_disk_does_not_take_goes_through_the_pipe(make: Maker, room: Path) -> None:
    found = make("full").run({"x": X})
    np.testing.assert_array_equal(found["x"], X + 1, strict=True)
    np.testing.assert_array_equal(found["y"], X * 2, strict=True)
    assert [file_behind(found[n]) is not None for n in ("x", "y")] == [True, False]
    assert [file.stat().st_size for file in room.iterdir()] == [X.nbytes]


def test_a_file_of_another_size_is_not_mapped(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345678")
    assert map_file(tmp_path / "f", 8).tobytes() == b"12345678"
    for size in (0, 7, 9):
        with pytest.raises(worker.TornFile, match="expected"):
            map_file(tmp_path / "f", size)
    with pytest.raises(worker.TornFile, match="cannot be read"):
        map_file(tmp_path / "none", 8)
