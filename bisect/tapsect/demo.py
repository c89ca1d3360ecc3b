"""The demo: a published model with a planted defect, and two honest differences.

Each scene is one diagnosis, as ``tapsect bisect`` makes it; the command that makes it again is
told beside it.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from debugtaps import EnvironmentFailure, write_npz
from tapsect.finding import Finding
from tapsect.folder import make_folder
from tapsect.progress import Progress

__all__ = ["FOLDER", "Scene", "play"]

FOLDER = Path("tapsect-demo")
DETECTOR = "ch_PP-OCRv4_det_infer"


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene as it was played.

    Attributes:
        title: What it is about.
        story: What was done, and what an honest answer is.
        finding: The answer; None where the scene could not be played.
        folder: Where the answer lies.
        moral: What the answer shows.
        command: The command that plays it again.
        missing: Why it could not be played; empty otherwise.
    """

    title: str
    story: str
    finding: Finding | None = None
    folder: Path | None = None
    moral: str = ""
    command: str = ""
    missing: str = ""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One diagnosis to be made."""

    model: Path
    inputs: Path
    out: Path
    engine: str = "ort"
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, progress: Progress) -> Finding:
        from tapsect.diagnose.flow import diagnose

        return diagnose(
            self.model, inputs=[self.inputs], engine=self.engine, engine_options=self.options,
            out=self.out, progress=progress, command=shlex.split(self.command),
        )  # fmt: skip

    @property
    def command(self) -> str:
        words = ["tapsect", "bisect", str(self.model), "--inputs", str(self.inputs)]
        if self.options:
            words += ["--engine", self.engine, "--engine-option"]
            words += [f"{key}={value}" for key, value in self.options.items()]
        return shlex.join([*words, "--out", str(self.out)])


def play(
    watch: Callable[[], AbstractContextManager[Progress]], folder: Path | None = None
) -> Iterator[Scene]:
    """Plays one scene after the other; what cannot be played says so, and the rest goes on.

    Args:
        watch: Gives a listener for the time that one scene takes.
        folder: Where results go; ``tapsect-demo`` here, or a temporary folder, when None.

    Raises:
        OutputError: The folder cannot be written.
    """
    stage = _stage(folder)
    for scene in (_planted, _ill_conditioned, _published_fault):
        with watch() as progress:
            played = scene(stage, progress)
        yield played


def _stage(folder: Path | None) -> Path:
    """Returns the folder of all scenes; each diagnosis has its own in it."""
    wanted = folder or FOLDER
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except OSError:
        if folder is not None:
            make_folder(folder / "planted")  # says what is wrong with it
            raise
        return Path(tempfile.mkdtemp(prefix="tapsect-demo-"))


def _planted(stage: Path, progress: Progress) -> Scene:
    title = "A defect in a published text detector"
    story = (
        "The detector of PP-OCRv4, with its real weights, looks at a page. Into the engine, ONNX"
        " Runtime, a fault of 5 % is planted at one convolution in the middle. No tolerance is"
        " given, and no golden values."
    )
    try:
        model, inputs = _detector(stage, "page", progress)
    except EnvironmentFailure as error:
        return Scene(title, story, missing=str(error))
    node = _middle_convolution(model)
    options = {"kind": "value", "nodes": node, "error": 0.05}
    asked = _Asked(model, inputs, stage / "planted", "planted", options)
    finding = asked.run(progress)
    named = finding.culprit_nodes == (node,)
    moral = f"The fault was planted {'there' if named else f'at {node!r}'}."
    return Scene(title, story, finding, asked.out, moral, asked.command)


def _ill_conditioned(stage: Path, progress: Progress) -> Scene:
    title = "A difference that is nobody's fault"
    story = (
        "The same detector looks at noise, under ONNX Runtime's own optimiser with no fault in"
        " it. Its answers differ from the reference by over 1 %, which any tolerance would"
        " report."
    )
    try:
        model, inputs = _detector(stage, "noise", progress)
    except EnvironmentFailure as error:
        return Scene(title, story, missing=str(error))
    asked = _Asked(model, inputs, stage / "noise")
    finding = asked.run(progress)
    honest = finding.status == "agrees" and finding.cause == "ill_conditioned"
    moral = "The model does that to any two correct engines." if honest else ""
    return Scene(title, story, finding, asked.out, moral, asked.command)


def _published_fault(stage: Path, progress: Progress) -> Scene:
    from tapsect.published_faults import LAYERNORM_KEEPDIMS0, layernorm_keepdims0

    title = f"A published fault: {LAYERNORM_KEEPDIMS0}"
    story = (
        "A small network with a layer norm that keeps no dimensions. The optimiser of ONNX"
        " Runtime fuses nodes of it that compute something else."
    )
    proto, feeds = layernorm_keepdims0()
    model, inputs = stage / "layernorm.onnx", stage / "layernorm.npz"
    model.write_bytes(proto.SerializeToString())
    write_npz(inputs, feeds)
    asked = _Asked(model, inputs, stage / "layernorm")
    finding = asked.run(progress)
    if finding.status == "agrees":
        moral = "The ONNX Runtime that is installed here no longer has this fault."
    else:
        moral = (
            "Looking at an inner tensor cures it: the wrong fusion was found by which tensors"
            " cure, and proved by a model of those nodes alone."
        )
    return Scene(title, story, finding, asked.out, moral, asked.command)


def _detector(stage: Path, scene: Any, progress: Progress) -> tuple[Path, Path]:
    from tapsect.published import fetch, sample

    progress.step("fetch", f"the published model {DETECTOR}")
    model = fetch(DETECTOR)
    inputs = stage / f"{scene}.npz"
    write_npz(inputs, sample(DETECTOR, scene=scene))
    return model, inputs


def _middle_convolution(path: Path) -> str:
    import onnx

    names = [n.name for n in onnx.load(path).graph.node if n.op_type == "Conv"]
    return str(names[len(names) // 2])
