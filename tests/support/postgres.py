"""A PostgreSQL of Debian's, started for the tests by an unprivileged user, without the network."""

from __future__ import annotations

import glob
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

__all__ = ["Postgres", "missing"]


def _tools() -> Path | None:
    """Returns the folder that holds ``initdb`` and ``postgres``."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    if found:
        return Path(found[-1]).parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


def missing() -> str:
    """Returns why no server can be started here; empty when one can."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed (pip install 'tapsect[triage]')"
    return "" if _tools() else "PostgreSQL is not installed (apt-get install postgresql)"


class Postgres:
    """A server that lives as long as its block."""

    def __init__(self) -> None:
        tools = _tools()
        assert tools is not None
        self.tools = tools
        self.user = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self.folder = Path(tempfile.mkdtemp(prefix="tapsect-pg-", dir="/tmp"))
        self.numbers = itertools.count()

    def __enter__(self) -> Self:
        if os.geteuid() == 0:  # the server refuses to run as root
            shutil.chown(self.folder, self.user)
        self._call("initdb", "-D", "data", "-U", "tapsect", "-A", "trust", "-N", "--locale=C")
        self.server = subprocess.Popen(
            [self.tools / "postgres", "-D", "data", "-k", str(self.folder), "-F",
             "-c", "listen_addresses=", "-c", "dynamic_shared_memory_type=mmap"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._as_user(),
        )  # fmt: skip
        while subprocess.run(
            [self.tools / "pg_isready", "-q", "-h", str(self.folder)], check=False
        ).returncode:
            assert self.server.poll() is None, "the server ended by itself"
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.send_signal(signal.SIGINT)
        self.server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _as_user(self) -> dict[str, Any]:
        more = {"user": self.user} if os.geteuid() == 0 else {}
        return {"cwd": self.folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}, **more}

    def _call(self, tool: str, *words: str) -> None:
        subprocess.run(
            [self.tools / tool, *words], check=True, capture_output=True, **self._as_user()
        )

    def empty_database(self) -> str:
        """Returns the URL of a new database."""
        name = f"history{next(self.numbers)}"
        self._call("createdb", "-h", str(self.folder), "-U", "tapsect", name)
        return f"postgresql://tapsect@/{name}?host={self.folder}"
