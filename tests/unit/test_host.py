"""Engines that print, hang, crash and leave: the parent survives and names what it saw."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import debugtaps
from debugtaps.engines import spare
from debugtaps.engines.host import Host
from debugtaps.engines.registry import resolve
from debugtaps.engines.spare import spare_workers
from debugtaps.errors import (
    EngineFailure,
    FailureKind,
    InputError,
    MissingPackage,
    SpecError,
    WorkerError,
)

ZOO = '''
import ctypes, faulthandler, os, signal, subprocess, sys, time
import numpy as np
import neighbour
import random  # the standard one, though a file of that name lies beside


def act(what):
    if what.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, what))
        time.sleep(60)
    if what == "null":
        ctypes.string_at(0)
    if what == "terminate":
        sys.stderr.write("terminate called after throwing an instance of 'std::bad_alloc'\\n")
        sys.stderr.flush()
        os.abort()
    if what == "hang":
        print("going to sleep", flush=True)
        time.sleep(600)
    if what == "orphan":
        subprocess.Popen(["sleep", "600"])
        time.sleep(600)
    if what == "exit":
        os._exit(7)
    if what == "sys.exit":
        sys.exit(5)
    if what == "closed":
        os.closerange(3, 100)
        time.sleep(600)
    if what == "error":
        raise RuntimeError("no kernel for Foo(21)\\nsecond line")
    if what == "key":
        raise KeyError("weights")
    if what == "memory":
        raise MemoryError
    if what == "huge":
        np.ones(10**16)
    if what == "cuda":
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
    if what == "list":
        return [1, 2]


class Zoo:
    unit_roundoff = 2.0 ** -11
    promotes_taps = True

    def __init__(self, build="", run="", load="", greeting="hello"):
        act(load)
        self.on_build, self.on_run, self.greeting = build, run, greeting
        self.open = 0

    def build(self, model, taps=()):
        act(self.on_build)
        self.open += 1
        return Session(self, model, taps)

    def load(self, folder):
        return Session(self, folder, ())

    def describe(self):
        return {"name": "zoo", "pid": os.getpid(), "open": self.open, "u": np.float32(0.5)}


class Session:
    def __init__(self, engine, model, taps):
        self.engine, self.model, self.taps = engine, str(model), taps

    def run(self, feeds):
        said = act(self.engine.on_run)
        if said is not None:
            return said
        for name, value in feeds.items():
            if name == "act":
                act(value.item())
        return {**feeds, "model": np.array(self.model), "taps": np.array(self.taps, object)}

    def save(self, folder):
        (folder / "saved.txt").write_text(self.model)

    def fusions(self):
        return [{"a", "b"}, ("c",)]

    def precisions(self):
        return {"a": "fp16"}

    def close(self):
        self.engine.open -= 1


class Noisy:
    def build(self, model, taps=()):
        print("noise on stdout", flush=True)
        os.write(1, b"noise on fd 1\\n")
        os.system("echo noise of a child")
        sys.stdin.read()
        return self

    def run(self, feeds):
        print("x" * 300_000)
        print("last words \\u00e9", file=sys.stderr)
        if "fail" in feeds:
            raise ValueError("failed")
        return {"y": feeds["x"], "seq": [np.ones(2)], "none": None, "scalar": 2.5}


class Positional:
    def __init__(self, needed):
        self.needed = needed

    def build(self, model, taps=()):
        return None


class Sums:
    """Answers p + x, drops a run whose first factor is below 0.9, reshapes below 1."""

    def build(self, model, taps=()):
        return self

    def run(self, feeds):
        p, x = feeds["p"], feeds["x"]
        if p[0] < 0.9:
            raise ValueError("too low")
        y = x * p[0]
        return {"y": y if p[0] >= 1 else y[:1], "n": (y > 2.1), "extra": y}
'''


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engines ü")
    (folder / "neighbour.py").write_text("", encoding="utf-8")
    (folder / "random.py").write_text("raise RuntimeError('shadows the library')", "utf-8")
    (folder / "zoo.py").write_text(ZOO, encoding="utf-8")
    return folder / "zoo.py"


HostMaker = Callable[..., Host]


@pytest.fixture
def host(zoo: Path) -> Iterator[HostMaker]:
    """Makes hosts of an engine of the zoo, and closes them."""
    made: list[Host] = []

    def make(name: str = "Zoo", timeout: float = 20.0, **options: Any) -> Host:
        made.append(Host(resolve(f"{zoo}:{name}", options), timeout=timeout))
        return made[-1]

    yield make
    for each in made:
        each.close()


MODEL = Path("/models/ü.onnx")

ENDINGS: list[tuple[str, FailureKind, str]] = [
    ("SIGSEGV", "crash", "SIGSEGV"),
    ("null", "crash", "SIGSEGV"),
    ("SIGABRT", "crash", "SIGABRT"),
    ("SIGFPE", "crash", "SIGFPE"),
    ("SIGILL", "crash", "SIGILL"),
    ("SIGKILL", "out_of_memory", "SIGKILL"),
    ("terminate", "out_of_memory", "SIGABRT"),
    ("exit", "crash", "code 7"),
    ("sys.exit", "crash", "code 5"),
]
RAISES: list[tuple[str, FailureKind | None, str]] = [
    ("error", None, "RuntimeError: no kernel for Foo(21)\nsecond line"),
    ("key", None, "KeyError: weights"),
    ("memory", "out_of_memory", "MemoryError"),
    ("huge", "out_of_memory", "Unable to allocate"),
    ("cuda", "out_of_memory", "CUDA out of memory"),
]


class TestEndings:
    @pytest.mark.parametrize(("what", "kind", "word"), ENDINGS)
    def test_of_a_run(self, host: HostMaker, what: str, kind: str, word: str) -> None:
        engine = host()
        build = engine.build(MODEL)
        first = engine.describe()["pid"]
        with pytest.raises(EngineFailure) as seen:
            build.run({"act": np.array(what)})
        assert (seen.value.kind, seen.value.phase) == (kind, "run")
        assert word in seen.value.message
        engine.build(MODEL).run({})
        assert engine.pid != first
        assert engine.restarts == 1

    @pytest.mark.parametrize(("what", "kind", "word"), ENDINGS[:1] + ENDINGS[7:8])
    def test_of_a_build(self, host: HostMaker, what: str, kind: str, word: str) -> None:
        with pytest.raises(EngineFailure, match=word) as seen:
            host(build=what).build(MODEL)
        assert (seen.value.kind, seen.value.phase) == (kind, "build")

    def test_the_tail_holds_the_stack(self, host: HostMaker) -> None:
        with pytest.raises(EngineFailure) as seen:
            host(build="null").build(MODEL)
        assert "Segmentation fault" in seen.value.tail
        assert "zoo.py" in seen.value.tail

    def test_a_child_that_only_closes_its_pipes_is_ended(self, host: HostMaker) -> None:
        engine = host()
        build, pid = engine.build(MODEL), engine.pid
        with pytest.raises(EngineFailure) as seen:
            build.run({"act": np.array("closed")})
        assert seen.value.kind == "crash"
        assert not exists(pid)


@pytest.mark.parametrize(("what", "kind", "text"), RAISES)
@pytest.mark.parametrize("phase", ["build", "run"])
def test_exceptions_are_told_and_the_child_lives(
    host: HostMaker, phase: str, what: str, kind: str | None, text: str
) -> None:
    engine = host(build=what) if phase == "build" else host()
    pid = engine.pid
    with pytest.raises(EngineFailure) as seen:
        engine.build(MODEL).run({"act": np.array(what)})
    assert (seen.value.kind, seen.value.phase) == (kind or f"{phase}_error", phase)
    assert text in seen.value.message
    assert "zoo.py" in seen.value.tail
    assert engine.pid == pid


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Returns whether something comes true in time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def members(group: int) -> list[str]:
    """Returns the living processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended while we looked
            state, _, of, *_ = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(of) == group and state != "Z":
                found.append(stat.parent.name)
    return found


def vanishes(pid: int) -> bool:
    return within(5.0, lambda: not exists(pid) or str(pid) not in members(pid))


class TestTimeout:
    def test_of_a_run_ends_the_child(self, host: HostMaker) -> None:
        engine = host()
        build, pid = engine.build(MODEL), engine.pid
        began = time.monotonic()
        with pytest.raises(EngineFailure, match=r"no answer in 0\.4 s") as seen:
            build.run({"act": np.array("hang")}, timeout=0.4)
        assert time.monotonic() - began < 3
        assert (seen.value.kind, seen.value.phase) == ("timeout", "run")
        assert "going to sleep" in seen.value.tail
        assert not exists(pid)

    def test_of_a_build_uses_the_hosts_own_limit(self, host: HostMaker) -> None:
        engine = host(timeout=1.0, build="hang")
        with pytest.raises(EngineFailure) as seen:
            engine.build(MODEL)
        assert (seen.value.kind, seen.value.phase) == ("timeout", "build")

    def test_takes_the_grandchildren_along(self, host: HostMaker) -> None:
        engine = host()
        build, pid = engine.build(MODEL), engine.pid
        with pytest.raises(EngineFailure):
            build.run({"act": np.array("orphan")}, timeout=0.6)
        assert within(5.0, lambda: not members(pid))

    def test_also_when_the_child_does_not_even_read(self, host: HostMaker) -> None:
        engine = host()
        build = engine.build(MODEL)
        os.kill(engine.pid, signal.SIGSTOP)
        with pytest.raises(EngineFailure) as seen:
            build.run({"x": np.zeros(8 << 20)}, timeout=0.5)
        assert seen.value.kind == "timeout"

    def test_does_not_count_the_loading(self, host: HostMaker) -> None:
        engine = host("Noisy")
        engine.start()
        os.kill(engine._child.pid, signal.SIGSTOP)  # type: ignore[union-attr]
        threading.Timer(0.6, os.kill, (engine._child.pid, signal.SIGCONT)).start()  # type: ignore[union-attr]
        engine.build(MODEL, timeout=0.5)


class TestNoise:
    def test_does_not_reach_the_protocol(self, host: HostMaker) -> None:
        build = host("Noisy").build(MODEL)
        assert build.run({"x": np.arange(3)})["y"].tolist() == [0, 1, 2]

    def test_is_the_tail_of_a_failure(self, host: HostMaker) -> None:
        build = host("Noisy").build(MODEL)
        with pytest.raises(EngineFailure) as seen:
            build.run({"fail": np.ones(1)})
        assert "last words é" in seen.value.tail
        assert len(seen.value.tail) < 20_000
        assert "noise on stdout" not in seen.value.tail  # that was the build's

    def test_of_an_earlier_call_is_not_in_the_tail(self, host: HostMaker) -> None:
        build = host().build(MODEL)
        tails = []
        for what in ("key", "error"):
            with pytest.raises(EngineFailure) as seen:
                build.run({"act": np.array(what)})
            tails.append(seen.value.tail)
        assert ["KeyError" in tail for tail in tails] == [True, False]

    def test_values_that_are_no_tensors_are_noted(self, host: HostMaker) -> None:
        build = host("Noisy").build(MODEL)
        outputs = build.run({"x": np.ones(1)})
        assert sorted(outputs) == ["scalar", "y"]
        assert outputs["scalar"].shape == ()
        build.run({"x": np.ones(1)})
        assert ["seq" in build.notes[0], "none" in build.notes[1]] == [True, True]
        assert len(build.notes) == 2


class TestArrays:
    @pytest.mark.parametrize(
        "array",
        [
            np.zeros((0, 3), np.float32),
            np.array(7),
            np.array([True]),
            np.array(["ü", ""], object),
            np.array([1.5], ml_dtypes.bfloat16),
            np.array([1.5], ml_dtypes.float8_e5m2),
            np.array([1 + 2j]),
            np.arange(12.0).reshape(3, 4).T,
        ],
        ids=lambda a: f"{a.dtype}{list(a.shape)}",
    )
    def test_cross_twice_unchanged(self, host: HostMaker, array: Any) -> None:
        seen = host().build(MODEL).run({"täp/µ:0 \n": array})["täp/µ:0 \n"]
        assert (seen.dtype, seen.shape) == (array.dtype, array.shape)
        assert seen.tolist() == array.tolist()

    def test_of_50_megabytes(self, host: HostMaker) -> None:
        array = np.arange(13 << 20, dtype=np.float32)
        seen = host().build(MODEL).run({"x": array}, names=["x"])["x"]
        assert np.array_equal(seen, array)

    def test_lists_are_taken_as_arrays(self, host: HostMaker) -> None:
        feeds: Any = {"x": [1, 2]}
        assert host().build(MODEL).run(feeds)["x"].tolist() == [1, 2]

    def test_records_are_refused_here(self, host: HostMaker) -> None:
        with pytest.raises(InputError, match="'x'"):
            host().build(MODEL).run({"x": np.array([{}], object)})

    def test_only_the_named_ones_come_back(self, host: HostMaker) -> None:
        feeds = {name: np.ones(1) for name in "abc"}
        assert list(host().build(MODEL).run(feeds, names=["c", "absent", "a"])) == ["c", "a"]

    def test_an_answer_that_is_no_mapping_breaks_the_contract(self, host: HostMaker) -> None:
        with pytest.raises(SpecError, match="run returned a list; expected a mapping"):
            host(run="list").build(MODEL).run({})


class TestResidentFeeds:
    def test_stand_behind_those_of_the_call(self, host: HostMaker) -> None:
        engine = host()
        engine.put("k", {"x": np.array(1), "y": np.array(2)})
        seen = engine.build(MODEL).run({"y": np.array(3)}, resident="k")
        assert (int(seen["x"]), int(seen["y"])) == (1, 3)

    def test_can_be_replaced_and_dropped(self, host: HostMaker) -> None:
        engine = host()
        build = engine.build(MODEL)
        for value in (1, 2):
            engine.put("k", {"x": np.array(value)})
            assert int(build.run(resident="k")["x"]) == value
        engine.drop("k")
        with pytest.raises(KeyError):
            build.run(resident="k")

    def test_come_back_after_a_restart(self, host: HostMaker) -> None:
        engine = host()
        engine.put("k", {"x": np.array(1)})
        build = engine.build(MODEL)
        build.run(resident="k")
        with pytest.raises(EngineFailure):
            build.run({"act": np.array("exit")})
        assert int(engine.build(MODEL).run(resident="k")["x"]) == 1


class TestSessions:
    def test_live_side_by_side_until_closed(self, host: HostMaker) -> None:
        engine = host()
        one, two = engine.build(Path("/a")), engine.build(Path("/b"), ["t", "ü"])
        assert [str(each.run()["model"]) for each in (one, two, one)] == ["/a", "/b", "/a"]
        assert two.taps == ("t", "ü")
        assert two.run()["taps"].tolist() == ["t", "ü"]
        one.close()
        one.close()
        with pytest.raises(WorkerError, match="closed"):
            one.run()
        with two:
            assert str(two.run()["model"]) == "/b"
        assert engine.describe()["open"] == 0

    def test_of_an_earlier_child_are_gone(self, host: HostMaker) -> None:
        engine = host()
        old, other = engine.build(MODEL), engine.build(MODEL)
        with pytest.raises(EngineFailure):
            old.run({"act": np.array("exit")})
        for each in (old, other):
            with pytest.raises(WorkerError, match="gone"):
                each.run()
        engine.build(MODEL)
        with pytest.raises(WorkerError, match="gone"):
            old.run()
        old.close()

    def test_of_a_child_that_died_between_calls_are_gone(self, host: HostMaker) -> None:
        engine = host()
        build = engine.build(MODEL)
        os.kill(engine.pid, signal.SIGKILL)
        assert within(5.0, lambda: not engine.alive(engine.generation))
        with pytest.raises(WorkerError, match="gone"):
            build.run()
        engine.build(MODEL).run()

    def test_say_optional_things(self, host: HostMaker, tmp_path: Path) -> None:
        build = host().build(MODEL)
        assert build.has == {"save", "fusions", "precisions"}
        assert build.fusions() == (frozenset("ab"), frozenset("c"))
        assert build.precisions() == {"a": "fp16"}
        build.save(tmp_path)
        assert (tmp_path / "saved.txt").read_text(encoding="utf-8") == str(MODEL)

    def test_may_be_silent(self, host: HostMaker) -> None:
        engine = host("Noisy")
        build = engine.build(MODEL)
        assert build.has == frozenset()
        assert (build.fusions(), build.precisions(), dict(engine.knobs())) == ((), {}, {})
        assert engine.unit_roundoff() is None
        assert not engine.promotes_taps
        with pytest.raises(EngineFailure, match="no load"):
            engine.load(MODEL)

    def test_can_be_loaded_from_a_folder(self, host: HostMaker, tmp_path: Path) -> None:
        assert str(host().load(tmp_path).run()["model"]) == str(tmp_path)


def test_the_engine_speaks_for_itself(host: HostMaker) -> None:
    engine = host()
    said = engine.describe()
    assert (said["name"], said["u"], said["pid"]) == ("zoo", 0.5, engine.pid)
    assert said["python"] == sys.version.split()[0]
    assert engine.unit_roundoff() == 2**-11
    assert engine.promotes_taps


def test_work_is_counted(host: HostMaker) -> None:
    engine = host()
    with pytest.raises(EngineFailure):
        host(build="error").build(MODEL)
    build = engine.build(MODEL)
    build.run()
    build.run()
    assert (engine.builds, engine.runs) == (1, 2)


class TestTurning:
    def test_an_engine_is_constructed_anew_in_the_same_process(self, host: HostMaker) -> None:
        engine = host(greeting="hello")
        build, pid = engine.build(MODEL), engine.pid
        engine.turn({"build": "error"})
        with pytest.raises(EngineFailure):
            engine.build(MODEL)
        assert (engine.pid, engine.restarts) == (pid, 0)
        assert build.run()  # a session that was open stays what it was
        engine.turn({})
        assert engine.build(MODEL).run()

    def test_what_the_engine_said_of_itself_is_asked_again(self, zoo: Path) -> None:
        with Host(resolve(f"{zoo}:Zoo", {"greeting": "hello"})) as engine:
            assert engine.describe()["name"] == "zoo"
            engine.build(MODEL)
            engine.turn({"greeting": "bye"})
            assert engine.describe()["open"] == 0

    def test_options_it_does_not_take_are_an_error_and_can_be_undone(self, host: HostMaker) -> None:
        engine = host()
        assert engine.build(MODEL)
        with pytest.raises(SpecError, match="does not take these options"):
            engine.turn({"colour": "red"})
        engine.turn({})
        assert engine.build(MODEL).run()

    def test_a_new_process_has_the_turned_options(self, host: HostMaker) -> None:
        engine = host()
        engine.turn({"build": "error"})
        engine.close()
        with pytest.raises(EngineFailure):
            engine.build(MODEL)


def test_latency_is_measured_in_the_child(host: HostMaker) -> None:
    build = host().build(MODEL)
    seconds = build.time({}, runs=4)
    assert len(seconds) == 4
    assert all(0 < each < 1 for each in seconds)
    assert len(build.time({}, runs=10**6, limit=0.05)) < 10**6


class TestSweep:
    def sweep(self, host: HostMaker, *runs: dict[str, Any], **more: Any) -> Any:
        build = host("Sums").build(MODEL)
        x = np.array([1, 2], np.float32)
        return build.sweep({"x": x}, pools={"p": (2, "float32")}, runs=list(runs), **more)

    def test_tells_base_spread_and_change(self, host: HostMaker) -> None:
        seen = self.sweep(host, {"p": ("plus", 0.5, 0)}, {"p": ("plus", 0.25, 0)}, {})
        assert seen.base["y"].tolist() == [1, 2]
        rms = np.sqrt((0.5**2 + 0.25**2) / 3)
        assert seen.spread["y"].tolist() == pytest.approx([rms, 2 * rms])
        assert seen.changed["n"].tolist() == [False, True]
        assert seen.kept == {"y": 3, "n": 3, "extra": 3}
        assert seen.notes == ()

    def test_drops_runs_that_raise_or_change_a_shape(self, host: HostMaker) -> None:
        runs = [{"p": (mode, u, 0)} for mode, u in (("minus", 0.5), ("minus", 0.05), ("plus", 0.5))]
        seen = self.sweep(host, *runs)
        assert seen.kept == {"y": 1, "n": 2, "extra": 2}
        assert "too low" in seen.notes[0]

    def test_sends_only_named_outputs(self, host: HostMaker) -> None:
        seen = self.sweep(host, {}, names=["y"])
        assert (list(seen.base), seen.changed) == (["y"], {})

    def test_is_the_same_for_the_same_seeds(self, host: HostMaker) -> None:
        run = {"p": ("uniform", 0.01, 3)}
        one, two = (self.sweep(host, run).spread["extra"] for _ in range(2))
        assert one.tolist() == two.tolist()
        assert one[0] > 0

    def test_whose_base_raises_is_a_run_error(self, host: HostMaker) -> None:
        with pytest.raises(EngineFailure, match="KeyError: x"):
            host("Sums").build(MODEL).sweep(pools={"p": (1, "float32")}, runs=[])


class TestLoading:
    def test_an_unknown_option_names_those_there_are(self, host: HostMaker) -> None:
        with pytest.raises(SpecError, match="given: colour; its options: build, run, load, greet"):
            host(colour="red").build(MODEL)

    def test_a_missing_option_too(self, host: HostMaker) -> None:
        with pytest.raises(SpecError, match="its options: needed"):
            host("Positional").describe()

    def test_a_build_without_a_session_breaks_the_contract(self, host: HostMaker) -> None:
        with pytest.raises(SpecError, match="build returned a NoneType; expected a session"):
            host("Positional", needed=1).build(MODEL)

    def test_an_unknown_class_names_those_there_are(self, host: HostMaker) -> None:
        with pytest.raises(SpecError, match="Noisy, Positional, Sums, Zoo"):
            host("Zebra").build(MODEL)

    def test_a_constructor_that_fails_is_the_environment(self, host: HostMaker) -> None:
        with pytest.raises(WorkerError, match="no kernel for Foo"):
            host(load="error").build(MODEL)

    def test_a_constructor_that_ends_the_process_too(self, host: HostMaker) -> None:
        engine = host(load="SIGSEGV")
        for _ in range(2):
            with pytest.raises(WorkerError, match=r"was ended by SIGSEGV while it loaded"):
                engine.build(MODEL)

    def test_a_constructor_that_hangs_too(self, host: HostMaker) -> None:
        with pytest.raises(WorkerError, match="did not load within 1 s"):
            host(load="hang", timeout=1.0).build(MODEL)

    def test_a_missing_package_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text("import no_such_package.sub", encoding="utf-8")
        with (
            Host(resolve(f"{tmp_path}/mine.py:Mine")) as engine,
            pytest.raises(MissingPackage, match="pip install no_such_package"),
        ):
            engine.build(MODEL)

    def test_a_file_with_a_syntax_error_is_bad_input(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text("class Mine(:", encoding="utf-8")
        with (
            Host(resolve(f"{tmp_path}/mine.py:Mine")) as engine,
            pytest.raises(SpecError, match=r"SyntaxError: .*\(mine.py, line 1\)"),
        ):
            engine.build(MODEL)

    def test_a_module_is_found_in_the_current_folder(self, zoo: Path) -> None:
        with Host(resolve("zoo:Zoo"), cwd=zoo.parent) as engine:
            assert engine.describe()["name"] == "zoo"


def interpreter(folder: Path, arguments: str) -> Path:
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


class TestOtherInterpreters:
    def test_run_the_same_engines(self, zoo: Path, tmp_path: Path) -> None:
        python = interpreter(tmp_path, "-X dev -W ignore")
        with Host(resolve(f"{zoo}:Zoo"), python=python) as engine:
            assert engine.build(MODEL).run({"x": np.ones(1)})["x"].tolist() == [1]

    def test_without_numpy_are_told_to_install_it(self, zoo: Path, tmp_path: Path) -> None:
        python = interpreter(tmp_path, "-S -E")
        with (
            Host(resolve(f"{zoo}:Zoo"), python=python) as engine,
            pytest.raises(MissingPackage, match=r"python -m pip install numpy"),
        ):
            engine.build(MODEL)

    def test_without_the_engine_are_told_what_to_install(self, tmp_path: Path) -> None:
        (tmp_path / "onnxruntime.py").write_text("raise ImportError('none here')", "utf-8")
        python = tmp_path / "python"
        python.write_text(
            f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec {sys.executable} "$@"\n', encoding="utf-8"
        )
        python.chmod(0o755)
        with (
            Host(resolve("ort"), python=python) as engine,
            pytest.raises(MissingPackage, match=r"python -m pip install onnxruntime"),
        ):
            engine.build(MODEL)

    @pytest.mark.parametrize("name", ["nowhere/python", "."])
    def test_that_do_not_start_are_named(self, zoo: Path, name: str) -> None:
        with (
            Host(resolve(f"{zoo}:Zoo"), python=Path(name)) as engine,
            pytest.raises(WorkerError, match="--engine-python"),
        ):
            engine.build(MODEL)

    def test_that_are_no_python_are_named(self, zoo: Path) -> None:
        with (
            Host(resolve(f"{zoo}:Zoo"), python=Path("/bin/true")) as engine,
            pytest.raises(WorkerError, match="exited with code 0 while it loaded"),
        ):
            engine.build(MODEL)


class TestLifetime:
    def test_starting_does_not_wait(self, host: HostMaker) -> None:
        began = time.monotonic()
        engine = host(load="hang", timeout=30.0)
        engine.start()
        assert time.monotonic() - began < 1
        engine._child.kill()  # type: ignore[union-attr]

    def test_closing_ends_the_child_and_it_can_start_again(self, host: HostMaker) -> None:
        engine = host()
        pid = engine.pid
        engine.close()
        engine.close()
        assert not exists(pid)
        assert engine.build(MODEL).run({"x": np.ones(1)})["x"].tolist() == [1]
        assert engine.restarts == 0

    def test_an_interrupted_call_does_not_leave_its_answer_behind(self, host: HostMaker) -> None:
        engine = host()
        build = engine.build(MODEL)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            build.run({"act": np.array("hang")})
        assert engine.build(MODEL).run({"x": np.ones(1)})["x"].tolist() == [1]

    def test_aborting_ends_a_call_of_another_thread(self, host: HostMaker) -> None:
        engine = host()
        build = engine.build(MODEL)
        timer = threading.Timer(0.3, engine.abort)
        timer.start()
        with pytest.raises(EngineFailure, match="SIGKILL"):
            build.run({"act": np.array("hang")})
        assert engine.build(MODEL).run({"x": np.ones(1)})["x"].tolist() == [1]

    @pytest.mark.parametrize("threaded", [False, True])
    @pytest.mark.parametrize("act", ["", "hang"])
    def test_the_child_ends_with_its_parent(self, zoo: Path, act: str, threaded: bool) -> None:
        code = f"""
            import threading, sys, time
            from pathlib import Path
            import numpy as np
            from debugtaps.engines.host import Host
            from debugtaps.engines.registry import resolve
            engine = Host(resolve({f"{zoo}:Zoo"!r}))
            def go():
                print(engine.pid, flush=True)
                engine.build(Path("m")).run({{"act": np.array({act!r})}})
            if {threaded}:
                thread = threading.Thread(target=go, daemon=True); thread.start()
                thread.join(3 if {act!r} == "" else 0.1)
            else:
                go()
            time.sleep(60)
        """
        root = Path(debugtaps.__file__).parents[1]
        parent = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(root)},
        )
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.3)
        assert exists(pid)
        parent.kill()
        parent.wait()
        parent.stdout.close()
        assert vanishes(pid)

    def test_a_child_outlives_the_thread_that_started_it(self, host: HostMaker) -> None:
        engine = host()
        thread = threading.Thread(target=engine.build, args=(MODEL,))
        thread.start()
        thread.join()
        time.sleep(0.1)
        assert engine.build(MODEL).run({"x": np.ones(1)})["x"].tolist() == [1]
        assert engine.restarts == 0

    def test_ctrl_c_does_not_reach_the_child(self, host: HostMaker) -> None:
        engine = host()
        assert os.getpgid(engine.pid) == engine.pid != os.getpgid(0)


def test_a_spare_worker_is_used_once_and_what_is_left_ends(tmp_path: Path) -> None:
    spec = resolve("ort-reference", {})
    with spare_workers(2):
        begun = [child.pid for child in spare._SPARE]
        with Host(spec) as one, Host(spec, cwd=tmp_path) as elsewhere:
            assert one.pid in begun
            assert elsewhere.pid not in begun  # another folder
        (left,) = spare._SPARE
    assert not spare._SPARE
    assert not left.alive()
    with Host(spec) as later:
        assert later.pid not in begun
