"""The command line: thin commands over the library, one sentence for every error."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Sequence

from debugtaps import TapsError
from tapsect.cli.argv import expand_lists

__all__ = ["main"]

_INTERRUPTED = "interrupted; run the same command again to continue"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status.

    Args:
        argv: The words after the program's name; those of the process when not given.
    """
    gc.set_threshold(200_000)  # what loads is no garbage; looking for it took a tenth of the start
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    ended: list[int] = []
    try:
        if argv is not None:
            return _command(list(argv))
        signal.signal(signal.SIGTERM, lambda number, _: _stop(ended, number))
        return _run(sys.argv[1:])
    except KeyboardInterrupt:
        return _fail(_INTERRUPTED, 128 + ended[0] if ended else 130)
    except TapsError as error:
        return _fail(str(error) or _INTERRUPTED, error.exit_code)
    except Exception as error:
        return _crashed(error)


def _stop(ended: list[int], number: int) -> None:
    """Ends as Ctrl-C does when the system asks for it: workers go, what was made stays."""
    ended.append(number)
    raise KeyboardInterrupt


def _run(argv: list[str]) -> int:
    """Runs the words of the process; the workers that they need begin before they are read."""
    try:
        count = _workers(argv)
        if not count:
            return _command(argv)
        from debugtaps import spare_workers

        with spare_workers(count):
            return _command(argv)
    finally:
        gc.freeze()  # the interpreter would look for garbage in all of it, thrice, before it ends


def _command(argv: list[str]) -> int:
    import typer

    from tapsect.cli.app import app_for

    app = app_for(argv[0] if argv else None)
    if not argv:
        app(["--help"], standalone_mode=False, prog_name="tapsect")
        return 2
    try:
        code = app(expand_lists(argv), standalone_mode=False, prog_name="tapsect")
    except typer.Exit as stop:
        code = stop.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        # Wrong usage, in the words of the parser; its class is not the same in all versions.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message().rstrip(".").replace(": Value error, ", ": ")
        return _fail(message if message.endswith("?") else f"{message}; see tapsect --help", 2)
    if code == 130:  # how the parser passes Ctrl-C on
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _workers(argv: Sequence[str]) -> int:
    """Returns how many workers a command is sure to need under this interpreter."""
    words = {word.partition("=")[0] for word in argv}
    sure = argv[:1] in (["bisect"], ["fix"], ["reduce"]) and len(argv) > 1
    if not sure or words & {"-h", "--help"}:
        return 0
    judged = argv[0] != "reduce" or ("--engine" in words and "--check" not in words)
    return 2 if judged and "--engine-python" not in words else 1


def _crashed(error: Exception) -> int:
    from tapsect.cli.crash import Crash

    crash = error if isinstance(error, Crash) else Crash(error)
    log = crash.log()
    where = f" and attach {log}" if log is not None else ""
    kind = type(crash.error).__name__
    return _fail(f"tapsect itself failed ({kind}); please report this{where}", 4)


def _fail(message: str, code: int) -> int:
    from tapsect.escape import clean

    sentence = clean(" ".join(message.split()), limit=2000)
    sys.stderr.write(f"tapsect: {sentence}\n")
    return code
