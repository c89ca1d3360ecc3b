"""The child process: loads one engine and answers its parent over two pipes.

This file runs as a script under whatever interpreter the engine needs.  It is therefore Python
3.8, and imports the standard library, numpy and the engine it is told to load, nothing else.
The parent imports the same file for its framing, so that both ends share one definition.

A message is ``<Q`` length of a JSON header, the header, then the raw bytes of the arrays that
``header["arrays"]`` lists, in that order and in C order.  Text tensors travel in the header.
Nothing is pickled: a pickle of numpy 2 cannot be read by numpy 1.

Large arrays lie in files that the other end maps, where the parent names a place for them: an
entry then says ``"in": [file, offset]``, and ``header["files"]`` how large each file is.  What
cannot be written there goes through the pipe.

The engine may print, fork, crash or hang.  The two pipes are none of its standard streams, so
that no text of the engine's can be taken for an answer.  Types that numpy lacks (bfloat16,
float8, int4) go by name; where ``ml_dtypes`` cannot be imported an engine sees, and may return,
their bits tagged with that name: an array of dtype ``[("bfloat16", "<u2")]``.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import importlib
import importlib.util
import inspect
import json
import mmap
import os
import signal
import struct
import sys
import threading
import time
import traceback
import types
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

NUMPY_MISSING = ""
try:
    import numpy as np
except ImportError as numpy_error:  # told to the parent in the answer to "load"
    NUMPY_MISSING = str(numpy_error) or "numpy cannot be imported"

Groups = Mapping[str, Mapping[str, Any]]
Entry = Dict[str, Any]
Read = Callable[[memoryview], None]

LENGTH = struct.Struct("<Q")
_PLAIN_KINDS = "biufc"
_PIECE = 1 << 20
_ELEMENTS = 1 << 20
BIG = 1 << 20
"""Bytes of an array that goes through a file rather than through the pipe."""
_ALIGN = 64


class NotAnArray(Exception):
    """A value that has no place on the wire; the text says what it is."""


# ------------------------------------------------------------------ arrays to bytes and back


@functools.lru_cache(maxsize=None)
def dtype_name(dtype: Any) -> Optional[str]:
    """Returns the wire name of a dtype, or None when it has none (text, records, objects)."""
    if dtype.names is not None:
        return str(dtype.names[0]) if len(dtype.names) == 1 else None
    if dtype.kind in "SUOMmV" and dtype.type.__module__.startswith("numpy"):
        return None
    return str(dtype.name)


def dtype_of(name: str, itemsize: int) -> Any:
    """Returns the dtype called ``name``: numpy's, that of ml_dtypes, or tagged bits."""
    with contextlib.suppress(TypeError):
        plain = np.dtype(name)
        if plain.kind in _PLAIN_KINDS:
            return plain
    try:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except (ImportError, AttributeError):
        return np.dtype([(name, "u%d" % itemsize)])


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, str):
        return str(value)
    raise NotAnArray("holds objects of type %s" % type(value).__name__)


def pack_array(value: Any) -> Tuple[Entry, Optional[Any]]:
    """Returns the header entry of one tensor and its bytes, None for a tensor of text."""
    if value is None or isinstance(value, (list, tuple, dict, set)):
        raise NotAnArray("is a %s" % type(value).__name__)
    array = np.asarray(value)
    shape = [int(size) for size in array.shape]
    if array.dtype.kind in "SUO":
        return {"text": [_text(item) for item in array.reshape(-1).tolist()], "shape": shape}, None
    name = dtype_name(array.dtype)
    if name is None:
        raise NotAnArray("has the type %s" % array.dtype)
    if array.dtype.kind in _PLAIN_KINDS and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    flat = np.ascontiguousarray(array).reshape(-1)
    entry = {"dtype": name, "itemsize": int(array.dtype.itemsize), "shape": shape}
    return entry, flat.view(np.uint8)


def pack(groups: Groups, shelf: Any = None) -> Tuple[List[Entry], List[Any], List[str]]:
    """Returns header entries, the buffers that no shelf took, and notes on what was left out."""
    entries: List[Entry] = []
    buffers: List[Any] = []
    notes: List[str] = []
    for group, arrays in groups.items():
        for name, value in arrays.items():
            try:
                entry, buffer = pack_array(value)
            except NotAnArray as error:
                notes.append("%s %r left out: it %s, not a tensor" % (group, name, error))
                continue
            entry.update(group=group, name=str(name))
            entries.append(entry)
            place = None if shelf is None or buffer is None else shelf.put(buffer)
            if place is not None:
                entry["in"] = place
            elif buffer is not None:
                buffers.append(buffer)
    return entries, buffers, notes


def unpack(
    entries: Sequence[Entry], read: Read, files: Mapping[str, Any]
) -> Dict[str, Dict[str, Any]]:
    """Returns the arrays of a message by group and name; ``read`` fills each buffer."""
    groups: Dict[str, Dict[str, Any]] = {}
    for entry in entries:
        shape = tuple(entry["shape"])
        if "text" in entry:
            array = np.empty(len(entry["text"]), dtype=object)
            array[:] = entry["text"]
        else:
            dtype = dtype_of(entry["dtype"], entry["itemsize"])
            count = 1
            for size in shape:
                count *= size
            size = count * entry["itemsize"]
            if "in" in entry:
                raw = part_of(files, entry["in"], size)
            else:
                raw = np.empty(size, dtype=np.uint8)
                read(memoryview(raw.data))
            array = raw.view(dtype)
        groups.setdefault(entry["group"], {})[entry["name"]] = array.reshape(shape)
    return groups


def encode(header: Mapping[str, Any], groups: Groups, shelf: Any = None) -> List[Any]:
    """Returns a message as the pieces to write, one after the other.

    ``shelf`` takes large buffers in place of the pipe: see ``Shelf``.
    """
    entries, buffers, notes = pack(groups, shelf)
    told = dict(header, arrays=entries, notes=notes)
    if shelf is not None and shelf.sizes:
        told["files"] = shelf.sizes
    text = json.dumps(told).encode("utf-8")
    return [LENGTH.pack(len(text)) + text] + [buffer for buffer in buffers if buffer.size]


def decode(
    read: Read, fetch: Optional[Callable[[str, int], Any]] = None
) -> Tuple[Dict[str, Any], Dict[str, Dict[str, Any]]]:
    """Returns the header and the arrays of the next message; ``fetch`` gives the bytes of files.

    Raises:
        TornFile: A file is not what the message says.
    """
    head = bytearray(LENGTH.size)
    read(memoryview(head))
    text = bytearray(LENGTH.unpack(bytes(head))[0])
    read(memoryview(text))
    header = json.loads(text.decode("utf-8"))
    files = {p: (fetch or mapped)(p, size) for p, size in header.pop("files", {}).items()}
    return header, unpack(header.pop("arrays"), read, files)


# ------------------------------------------------------------------------ arrays in files


class TornFile(Exception):
    """A file does not hold what a message says of it."""


class Shelf:
    """A file beside the pipe that takes the large arrays of one message.

    It is made with the first of them.  What it has no room for goes through the pipe.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.sizes: Dict[str, int] = {}
        self._file: Any = None
        self._closed = False

    def put(self, buffer: Any) -> Optional[List[Any]]:
        """Writes bytes and returns where they lie; None where they are few or cannot be written."""
        if self._closed or buffer.size < BIG:
            return None
        before = self.sizes.get(self.path, 0)
        start = -(-before // _ALIGN) * _ALIGN
        try:
            if self._file is None:
                self._file = open(self.path, "xb", buffering=0)  # noqa: SIM115
            self._file.seek(start)
            view = memoryview(buffer)
            while len(view):
                view = view[self._file.write(view[:_PIECE]) :]
        except OSError:
            self.close()
            if before:
                os.truncate(self.path, before)
            return None
        self.sizes[self.path] = start + buffer.size
        return [self.path, start]

    def close(self) -> None:
        """Takes no more; a file without anything in it goes."""
        self._closed = True
        if self._file is not None:
            self._file.close()
            if not self.sizes:
                os.unlink(self.path)
            self._file = None


def mapped(path: str, size: int, access: int = mmap.ACCESS_COPY) -> Any:
    """Returns the bytes of a file, which the system reads when they are looked at.

    Raises:
        TornFile: It is not there, or has another size.
    """
    try:
        with open(path, "rb") as file:
            held = os.fstat(file.fileno()).st_size
            if held != size or not size:
                raise TornFile("%s holds %d bytes; expected %d" % (path, held, size))
            return np.frombuffer(mmap.mmap(file.fileno(), size, access=access), np.uint8)
    except OSError as error:
        raise TornFile("%s cannot be read: %s" % (path, error.strerror)) from error


def part_of(files: Mapping[str, Any], place: Sequence[Any], size: int) -> Any:
    """Returns so many bytes of a file, from an offset on.

    Raises:
        TornFile: They do not lie there.
    """
    path, start = place
    if path not in files or not 0 <= start <= files[path].size - size:
        raise TornFile("%d bytes do not lie at %s of %s" % (size, start, path))
    return files[path][start : start + size]


def plain(value: Any) -> Any:
    """Returns ``value`` as JSON can hold it; what it cannot hold becomes its text."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return str(value)


# ------------------------------------------------------------------------- loading an engine


def _add_to_path(folder: str) -> None:
    """Makes the neighbours of a user's file importable, behind the standard library."""
    library = os.path.dirname(os.__file__)
    own = (library, os.path.join(library, "lib-dynload"))
    last = max([at for at, entry in enumerate(sys.path) if entry in own], default=-1)
    sys.path.insert(last + 1, folder)


def _lend_siblings(where: str) -> None:
    """Lets an engine of ours import the pure files beside it where this project is not installed.

    The packages are empty shells: their own files need a newer Python, and what the core needs.
    """
    with contextlib.suppress(ImportError, ValueError):
        if sys.version_info >= (3, 11) and importlib.util.find_spec("debugtaps") is not None:
            return
    engines = os.path.dirname(os.path.abspath(where))
    for name, folder in (("debugtaps", os.path.dirname(engines)), ("debugtaps.engines", engines)):
        package = types.ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package


def import_target(kind: str, where: str) -> Any:
    """Returns the module of an engine: a file of ours or of a user's, or an installed module."""
    if kind == "builtin":
        _lend_siblings(where)
    if kind == "module":
        _add_to_path(os.getcwd())
        return importlib.import_module(where)
    if kind == "file":
        _add_to_path(os.path.dirname(os.path.abspath(where)))
    name = "tapsect_engine_" + "".join(c if c.isalnum() else "_" for c in Path(where).stem)
    spec = importlib.util.spec_from_file_location(name, where)
    if spec is None or spec.loader is None:
        raise ImportError("%s is not a Python file" % where)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class ContractBroken(Exception):
    """An engine does not do what every engine must: its author's fault, not the compiler's."""


def breach(engine: Any) -> Optional[str]:
    """Returns how an engine breaks the contract at first sight, or None."""
    build = getattr(engine, "build", None)
    if not callable(build):
        return "has no method build(model, taps)"
    try:
        inspect.signature(build).bind(Path(), ())
    except TypeError as error:
        return "build does not take (model, taps): %s" % error
    except ValueError:  # a builtin without a signature
        return None
    return None


def find_class(kind: str, where: str, name: str) -> Any:
    """Returns the engine's class; raises LookupError that names what the module does hold."""
    found = module = import_target(kind, where)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        held = [
            each
            for each, value in vars(module).items()
            if inspect.isclass(value) and hasattr(value, "build")
        ]
        listed = ", ".join(sorted(held)) or "none"
        raise LookupError("%s has no %r; classes with a build method: %s" % (where, name, listed))
    return found


def option_names(cls: Any) -> List[str]:
    """Returns the names of the options a constructor takes; ``**name`` stands for any other."""
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        return []
    star = inspect.Parameter.VAR_KEYWORD
    return [("**" if each.kind is star else "") + each.name for each in parameters]


# --------------------------------------------------------------------------- noise in streams


def factors(size: int, dtype: str, mode: str, u: float, seed: int) -> Any:
    """Returns one pool of relative noise: a vector of factors near one."""
    kind = dtype_of(dtype, 0)
    if mode != "uniform":
        return np.full(size, 1.0 + u * {"plus": 1.0, "minus": -1.0, "one": 0.0}[mode], kind)
    generator, values = np.random.Generator(np.random.PCG64(seed)), np.empty(size, kind)
    for start in range(0, size, _ELEMENTS):  # one stream, whatever the pieces
        part = values[start : start + _ELEMENTS]
        part[...] = 1.0 + u * (2.0 * generator.random(part.size) - 1.0)
    return values


def _is_float(array: Any) -> bool:
    if array.dtype.names is not None or array.dtype.kind in "biuSUO":
        return False
    return array.dtype.kind in "fc" or "float" in array.dtype.name


def window_of(pool: Any, start: int, shape: Sequence[int]) -> Any:
    """Returns part of a pool in a tensor's shape, without copying it."""
    size = 1
    for length in shape:
        size *= int(length)
    return pool[start : start + size].reshape(tuple(shape))


class Spread:
    """The mean square deviation of one output from its base, or where it ever changed.

    Beside base and sum, wide numbers are made of a piece at a time.
    """

    def __init__(self, base: Any) -> None:
        self.base = np.array(base, copy=True, order="C")
        self.kept = 0
        self.is_float = _is_float(self.base)
        self.total = np.zeros(self.base.shape, np.float64 if self.is_float else bool)

    def add(self, value: Any) -> None:
        """Takes one more run in, unless its shape or type is not that of the base."""
        value = np.asarray(value)
        if value.shape != self.base.shape or value.dtype != self.base.dtype:
            return
        self.kept += 1
        for total, new, base in self._pieces(self.total, np.ascontiguousarray(value), self.base):
            if self.is_float:
                with np.errstate(all="ignore"):
                    total += self._square(new, base)
            else:
                total |= np.asarray(new != base, dtype=bool)

    @staticmethod
    def _pieces(*arrays: Any) -> Iterator[List[Any]]:
        flat = [array.reshape(-1) for array in arrays]
        for start in range(0, flat[0].size, _ELEMENTS):
            yield [each[start : start + _ELEMENTS] for each in flat]

    def _square(self, value: Any, base: Any) -> Any:
        kind = np.complex128 if base.dtype.kind == "c" else np.float64
        square = np.subtract(value, base, dtype=kind)
        square = np.abs(square) ** 2 if kind is np.complex128 else square * square
        if not np.isfinite(square.sum()):
            gone = np.isnan(value.astype(kind)) & np.isnan(base.astype(kind))
            square = np.where(np.isnan(square), np.inf, square)
            square = np.where(gone | (value == base), 0.0, square)
        return square

    def result(self) -> Any:
        """Returns the rms deviation (infinite when no run was kept) or the mask of changes."""
        if not self.is_float:
            return self.total
        kind = np.float64 if self.base.dtype in (np.float64, np.complex128) else np.float32
        found = np.full(self.base.shape, np.inf, kind)
        for piece, sums in self._pieces(found, self.total) if self.kept else ():
            with np.errstate(all="ignore"):
                piece[...] = np.sqrt(sums / self.kept)
        return found


# ---------------------------------------------------------------------------------- the server


class Server:
    """Holds the engine, its sessions and the resident feeds; one method per request."""

    def __init__(self) -> None:
        self.engine: Any = None
        self.sessions: Dict[int, Any] = {}
        self.resident: Dict[str, Dict[str, Any]] = {}
        self.next_session = 1
        self.ranges: Optional[Dict[str, Any]] = None

    def load(self, header: Dict[str, Any], _: Groups) -> Tuple[Dict[str, Any], Groups]:
        """Imports the engine and constructs it with the user's options."""
        if NUMPY_MISSING:
            return {"refused": "import", "package": "numpy", "text": NUMPY_MISSING}, {}
        try:
            cls = find_class(*header["target"])
        except LookupError as error:
            return {"refused": "class", "text": str(error.args[0])}, {}
        except ImportError as error:
            return {"refused": "import", "package": error.name or "", "text": str(error)}, {}
        try:
            self.engine = cls(**header["options"])
        except ImportError as error:
            return {"refused": "import", "package": error.name or "", "text": str(error)}, {}
        except (TypeError, ValueError) as error:
            traceback.print_exc()
            text = "%s: %s" % (type(error).__name__, error)
            return {"refused": "options", "text": text, "takes": option_names(cls)}, {}
        broken = breach(self.engine)
        if broken is not None:
            return {"refused": "class", "text": "%s %s" % (header["target"][2], broken)}, {}
        if not gc.isenabled():  # what was loaded first is no garbage
            gc.freeze()
            gc.enable()
        if self.ranges is not None:  # made anew with other options, for the same data
            self.engine.expect(self.ranges)
        u = getattr(self.engine, "unit_roundoff", None)
        u = u() if callable(u) else u
        return {
            "unit_roundoff": None if u is None else float(u),
            "promotes_taps": bool(getattr(self.engine, "promotes_taps", False)),
            "builds_only": bool(getattr(self.engine, "builds_only", False)),
            "expects": callable(getattr(self.engine, "expect", None)),
            "python": sys.version.split()[0],
        }, {}

    def build(self, header: Dict[str, Any], _: Groups) -> Tuple[Dict[str, Any], Groups]:
        """Builds a model and keeps the session; the engine first hears of the data, if it will."""
        if header["ranges"] is not None:
            self.expect(header, {})
        return self._keep(self.engine.build(Path(header["model"]), tuple(header["taps"])))

    def expect(self, header: Dict[str, Any], _: Groups) -> Tuple[Dict[str, Any], Groups]:
        """Lets the engine hear what the data need: of each input the range of its shape."""
        self.ranges = header["ranges"]
        self.engine.expect(self.ranges)
        return {}, {}

    def restore(self, header: Dict[str, Any], _: Groups) -> Tuple[Dict[str, Any], Groups]:
        """Makes a session from a folder that ``save`` wrote."""
        if not hasattr(self.engine, "load"):
            raise TypeError("this engine has no load(folder)")
        return self._keep(self.engine.load(Path(header["folder"])))

    def _keep(self, session: Any) -> Tuple[Dict[str, Any], Groups]:
        if not callable(getattr(session, "run", None)):
            raise ContractBroken(
                "build returned a %s; expected a session with run(feeds) and close()"
                % type(session).__name__
            )
        number, self.next_session = self.next_session, self.next_session + 1
        self.sessions[number] = session
        optional = ("save", "fusions", "kernels", "precisions", "tactics")
        said = plain(session.notes()) if hasattr(session, "notes") else []
        has = [n for n in optional if hasattr(session, n)]
        return {"session": number, "has": has, "said": said}, {}

    def put(self, header: Dict[str, Any], groups: Groups) -> Tuple[Dict[str, Any], Groups]:
        """Keeps feeds under a key."""
        self.resident[header["key"]] = dict(groups.get("feed", {}))
        return {}, {}

    def drop(self, header: Dict[str, Any], _: Groups) -> Tuple[Dict[str, Any], Groups]:
        """Forgets the feeds of a key."""
        self.resident.pop(header["key"], None)
        return {}, {}

    def _feeds(self, header: Dict[str, Any], groups: Groups) -> Dict[str, Any]:
        feeds = dict(self.resident[header["resident"]]) if header["resident"] is not None else {}
        feeds.update(groups.get("feed", {}))
        return feeds

    def _answer(self, header: Dict[str, Any], feeds: Mapping[str, Any]) -> Dict[str, Any]:
        outputs = self.sessions[header["session"]].run(feeds)
        if not isinstance(outputs, Mapping):
            raise ContractBroken(
                "run returned a %s; expected a mapping from names to arrays"
                % type(outputs).__name__
            )
        wanted = header["names"]
        chosen = outputs if wanted is None else [name for name in wanted if name in outputs]
        for name in chosen:
            _check_value(name, outputs[name])
        return {str(name): outputs[name] for name in chosen}

    def run(self, header: Dict[str, Any], groups: Groups) -> Tuple[Dict[str, Any], Groups]:
        """Runs a session once."""
        return {}, {"output": self._answer(header, self._feeds(header, groups))}

    def time(self, header: Dict[str, Any], groups: Groups) -> Tuple[Dict[str, Any], Groups]:
        """Runs a session some times, or until time is up; tells the seconds of each run."""
        feeds, session = self._feeds(header, groups), self.sessions[header["session"]]
        end, seconds = time.monotonic() + header["limit"], []  # type: float, List[float]
        while len(seconds) < header["runs"] and (not seconds or time.monotonic() < end):
            start = time.perf_counter()
            session.run(feeds)
            seconds.append(time.perf_counter() - start)
        return {"seconds": seconds}, {}

    def sweep(self, header: Dict[str, Any], groups: Groups) -> Tuple[Dict[str, Any], Groups]:
        """Runs a session on ones, then on each run of factors, and keeps only the spread."""
        feeds, pools = self._feeds(header, groups), header["pools"]
        windows, shaken = header.get("windows", {}), header.get("shaken", {})
        inner = {window[0] for window in [*windows.values(), *shaken.values()]}

        def noisy(run: Mapping[str, Any]) -> Dict[str, Any]:
            still = ("one", 0.0, 0)
            made = {n: factors(*pools[n], *run.get(n, still)) for n in pools}
            given = dict(feeds, **{n: v for n, v in made.items() if n not in inner})
            for name, (pool, start, shape) in windows.items():
                given[name] = window_of(made[pool], start, shape)
            for name, (pool, start) in shaken.items():
                if name in given and pool in run:
                    value = given[name]
                    # A product of arrays without axes is a scalar, which no engine takes.
                    given[name] = np.asarray(value * window_of(made[pool], start, value.shape))
            return given

        notes = []
        plain = self._answer(header, noisy({}))
        for name in list(plain):
            if isinstance(plain[name], (list, tuple, dict)) or plain[name] is None:
                notes.append("output %r left out: it is not a tensor" % name)
                del plain[name]
        if not header["runs"]:
            return {"kept": dict.fromkeys(plain, 0), "said": notes}, {"base": plain}
        spreads = {name: Spread(np.asarray(plain.pop(name))) for name in list(plain)}
        for run in header["runs"]:
            try:
                outputs = self._answer(header, noisy(run))
            except Exception as error:
                notes.append("a run was dropped: %s: %s" % (type(error).__name__, error))
                continue
            for name in spreads.keys() & outputs.keys():
                spreads[name].add(outputs.pop(name))
        kept = {name: spread.kept for name, spread in spreads.items()}
        found: Dict[str, Dict[str, Any]] = {"base": {}, "spread": {}, "changed": {}}
        for name in kept:
            spread = spreads.pop(name)  # its sum, twice as large as the tensor, goes with it
            found["base"][name] = spread.base
            found["spread" if spread.is_float else "changed"][name] = spread.result()
        return {"kept": kept, "said": notes}, found

    def ask(self, header: Dict[str, Any], _: Groups) -> Tuple[Dict[str, Any], Groups]:
        """Answers an optional member of the engine or of a session; absent ones are null."""
        number = header["session"]
        holder = self.engine if number is None else self.sessions[number]
        member = getattr(holder, header["member"], None)
        return {"value": None if member is None else plain(member())}, {}

    def save(self, header: Dict[str, Any], _: Groups) -> Tuple[Dict[str, Any], Groups]:
        """Lets a session write itself to a folder."""
        self.sessions[header["session"]].save(Path(header["folder"]))
        return {}, {}

    def close(self, header: Dict[str, Any], _: Groups) -> Tuple[Dict[str, Any], Groups]:
        """Frees a session."""
        session = self.sessions.pop(header["session"], None)
        closer = getattr(session, "close", None)
        if closer is not None:
            closer()
        return {}, {}


def _check_value(name: Any, value: Any) -> None:
    """Takes arrays and what ONNX has beside them (sequences, maps, nothing), and no more."""
    if value is None or isinstance(value, (list, tuple, dict)):
        return
    array = None if isinstance(value, (str, bytes)) else np.asarray(value)
    if array is None or (
        array.dtype == object and not all(isinstance(each, (str, bytes)) for each in array.flat)
    ):
        kind = type(value).__name__
        raise ContractBroken(
            "run returned Python objects (%s) for %r; expected an array" % (kind, str(name))
        )


OPERATIONS = (
    "load", "build", "expect", "restore", "put", "drop", "run", "time", "sweep", "ask", "save",
    "close",
)  # fmt: skip


def _tell(error: BaseException) -> Dict[str, Any]:
    traceback.print_exception(type(error), error, error.__traceback__)
    kinds = [base.__name__ for base in type(error).__mro__]
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    fatal = bool(getattr(error, "fatal", False))
    return {"error": {"type": type(error).__name__, "kinds": kinds, "text": text, "fatal": fatal}}


def answer(server: Server, header: Dict[str, Any], groups: Groups) -> List[Any]:
    """Returns the encoded answer to one request; an exception of the engine's is an answer."""
    room = header.get("room")
    shelf = None if room is None else Shelf(room)
    try:
        if header["op"] not in OPERATIONS:
            raise ValueError("unknown operation %r" % header["op"])
        reply, arrays = getattr(server, header["op"])(header, groups)
        return encode(reply, arrays, shelf)
    except Exception as error:
        return encode(_tell(error), {})
    finally:
        if shelf is not None:
            shelf.close()


# --------------------------------------------------------------------------------- the process


def _reader(fd: int) -> Read:
    stream = open(fd, "rb", buffering=0, closefd=False)  # noqa: SIM115

    def read(view: memoryview) -> None:
        while len(view):
            got = stream.readinto(view[:_PIECE])
            if not got:
                raise EOFError
            view = view[got:]

    return read


def _write(fd: int, pieces: List[Any]) -> None:
    """Writes pieces in turn; none is held once it is written."""
    pieces.reverse()
    while pieces:
        view = memoryview(pieces.pop()).cast("B")
        while len(view):
            view = view[os.write(fd, view[:_PIECE]) :]


def _die_with(parent: int, by_signal: int) -> None:
    """Ends this process when the parent is gone, also while the engine hangs.

    The kernel's signal fires when the *thread* that started us ends, so it serves only when
    that was the parent's main thread.
    """
    if by_signal and sys.platform.startswith("linux"):
        with contextlib.suppress(Exception):
            ctypes = importlib.import_module("ctypes")
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    else:

        def watch() -> None:
            while os.getppid() == parent:
                time.sleep(1.0)
            os._exit(1)

        threading.Thread(target=watch, daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _requests(fd: int) -> Iterator[Tuple[Dict[str, Any], Groups]]:
    read = _reader(fd)
    while True:
        try:
            yield decode(read)
        except EOFError:
            return


def serve(request_fd: int, reply_fd: int) -> None:
    """Answers requests until the parent closes its end."""
    server = Server()
    for header, groups in _requests(request_fd):
        pieces = answer(server, header, groups)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        _write(reply_fd, pieces)
        del header, groups, pieces  # arrays may be large, and the next request far


def main(request_fd: int, reply_fd: int, parent: int, by_signal: int) -> None:
    """Runs the child; it leaves without the engine's own tear-down, which may crash."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or ".") != here]
    for fd in (request_fd, reply_fd):
        os.set_inheritable(fd, False)  # noqa: FBT003
    faulthandler.enable()
    gc.disable()  # until the engine is loaded
    _die_with(parent, by_signal)
    with contextlib.suppress(BrokenPipeError):
        serve(request_fd, reply_fd)
    os._exit(0)


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:5]))
