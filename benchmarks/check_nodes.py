"""A check that costs nearly nothing: does the candidate still hold all of these nodes?

    python -S check_nodes.py CANDIDATE LOG NODE...       exit 1 when it does

Names are looked for as the file writes a node's name: one byte of length, then the name, after
the tag of the field.  Each call is noted in LOG.
"""

from __future__ import annotations

import sys


def main(candidate: str, log: str, *nodes: str) -> int:
    with open(log, "a") as file:
        file.write(candidate + "\n")
    with open(candidate, "rb") as file:
        data = file.read()
    named = [b"\x1a" + bytes([len(n.encode())]) + n.encode() for n in nodes]
    return int(all(each in data for each in named))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
