"""The one error tree of the project.

    TapsError                      every error a user may see            exit
    ├── UsageError                 the command or its input is wrong     2
    │   ├── ModelError             the model file cannot be used
    │   │   └── ModelCodeError     the user's own Python raised
    │   ├── TapError               a tap is misplaced, repeated, lost or unknown
    │   ├── InputError             inputs, golden values or judge are wrong
    │   ├── SpecError              no such engine, or an option it does not take
    │   └── OutputError            the folder to write to cannot be used
    ├── EnvironmentFailure         this machine cannot do what was asked 4
    │   ├── MissingPackage         an extra is not installed
    │   ├── WorkerError            a child process could not be started or answers nonsense
    │   └── ReferenceFailed        the reference cannot run the model
    ├── EngineFailure              an engine failed: an observation, not an error of ours
    └── Interrupted                Ctrl-C; what was done is in the journal 130

Each message says what was seen, what was expected and what to do.
"""

from __future__ import annotations

from typing import ClassVar, Literal

FailureKind = Literal["build_error", "run_error", "crash", "timeout", "out_of_memory"]
Phase = Literal["build", "run"]


class TapsError(Exception):
    """Base of every error that is shown to a user as one sentence."""

    exit_code: ClassVar[int] = 2


class UsageError(TapsError):
    """The command line or one of its inputs is wrong."""


class ModelError(UsageError):
    """The model file is missing, truncated, not ONNX or not valid."""


class ModelCodeError(ModelError):
    """Python code of the user's raised; the message names the line.

    Attributes:
        trace: The traceback through the user's files, theirs only.
    """

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


class TapError(UsageError):
    """A tap is misplaced, repeated, lost on the way or unknown; the message names it."""


class InputError(UsageError):
    """Inputs, golden values or a judge do not fit the model."""


class SpecError(UsageError):
    """An engine specification names nothing, or an option is not one of the engine's."""


class OutputError(UsageError):
    """The output folder cannot be written or holds something else."""


class EnvironmentFailure(TapsError):
    """The machine, not the command, is at fault."""

    exit_code = 4


class MissingPackage(EnvironmentFailure):
    """A package of an extra is not installed; the message holds the install line."""


class WorkerError(EnvironmentFailure):
    """A child process could not be started, or its answer makes no sense."""


class ReferenceFailed(EnvironmentFailure):
    """The reference cannot run the model; the message names the operator where it can."""


class EngineFailure(TapsError):
    """An engine failed to build or run: data for the diagnosis.

    Attributes:
        kind: What happened, in the words of ``result.json``.
        phase: Whether it happened in ``build`` or in ``run``.
        message: The engine's own message, first line first.
        tail: The last lines the child process printed before it failed.
    """

    exit_code = 1

    def __init__(self, kind: FailureKind, phase: Phase, message: str, tail: str = "") -> None:
        super().__init__(message)
        self.kind: FailureKind = kind
        self.phase: Phase = phase
        self.message = message
        self.tail = tail


class Interrupted(TapsError):
    """The user stopped the command; the journal lets it continue."""

    exit_code = 130
