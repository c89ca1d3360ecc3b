"""``python -m tapsect``: the command line."""

import sys

from tapsect.cli import main

if __name__ == "__main__":
    sys.exit(main())
