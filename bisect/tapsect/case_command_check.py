"""Runs the command that judged this model, and says whether it still fails.

python check.py          exit 1: it fails   0: it does not   2: it cannot be judged here
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict

HERE = Path(__file__).resolve().parent
SETTINGS: Dict[str, Any] = {}

GONE, THERE, CANNOT = 0, 1, 2
SKIP = 125


def main() -> int:
    """Returns the exit status."""
    places = {
        "{model}": HERE / "model.onnx",
        "{inputs}": HERE / "inputs.npz",
        "{inputs_json}": HERE / "inputs.json",
    }
    words = []
    for word in SETTINGS["command"]:
        for place, path in places.items():
            word = word.replace(place, str(path))
        words.append(word)
    if not any("{model}" in word for word in SETTINGS["command"]):
        Path(SETTINGS["artifact"]).write_bytes((HERE / "model.onnx").read_bytes())
    try:
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SETTINGS["timeout"]
        )
    except OSError as error:
        print("the command cannot be started: %s" % error)
        return CANNOT
    except subprocess.TimeoutExpired:
        print("no answer in time")
        return THERE if SETTINGS["kind"] == "timeout" else CANNOT
    text = done.stdout.decode("utf-8", "replace")
    print(text, end="")
    return verdict(done.returncode, text)


def verdict(code: int, text: str) -> int:
    """Returns what an exit status and a text mean under the rule."""
    if code == SKIP:
        return CANNOT
    if code in SETTINGS["ignored"] or (SETTINGS["codes"] and code not in SETTINGS["codes"]):
        return GONE
    if SETTINGS["regexes"]:
        found = any(re.search(regex, text) for regex in SETTINGS["regexes"])
        return THERE if found else GONE
    return THERE if code != 0 or code in SETTINGS["codes"] else GONE


if __name__ == "__main__":
    sys.exit(main())
