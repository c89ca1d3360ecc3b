"""``python -m tapsect.triage.runner JOB.json``: one diagnosis in a process of its own.

Its answer is the folder; what kept it from one is written beside it as ``FOLDER.stopped.json``.
The process ends with the one that started it: that one holds the other end of standard input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

__all__ = ["main", "stop_file"]


def stop_file(folder: Path) -> Path:
    """Returns where a runner writes why there is no finding."""
    return folder.with_name(f"{folder.name}.stopped.json")


def main(file: str) -> int:
    """Makes the diagnosis that a job's file describes.

    Returns:
        0 when there is a finding, whatever it says.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from debugtaps import EnvironmentFailure, TapsError, write_json_atomic
    from tapsect.folder import check_folder
    from tapsect.report import write_reports

    job: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
    folder = Path(job["arguments"]["out"])
    try:
        import tapsect

        check_folder(folder)
        given = {k: _path(k, v) for k, v in job["arguments"].items()}
        finding = tapsect.bisect(**given, command=("tapsect", "triage", job["entry"]))
        write_reports(folder, finding)
        return 0
    except TapsError as error:
        kind = "failed" if isinstance(error, EnvironmentFailure) else "refused"
        kind = getattr(error, "limit", kind)
        write_json_atomic(stop_file(folder), {"kind": kind, "message": str(error)})
    except Exception as error:  # told in one sentence; the rest is in the log beside the folder
        traceback.print_exc()
        said = f"tapsect itself failed ({type(error).__name__}); see {folder.name}.log"
        write_json_atomic(stop_file(folder), {"kind": "failed", "message": said})
    return 1


def _path(name: str, value: Any) -> Any:
    return Path(value) if name in ("out", "engine_python", "reference_model") and value else value


def _end_with_parent() -> None:
    """Waits for standard input to close; the engine's worker follows this process by itself."""
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
