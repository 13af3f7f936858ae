"""``python -m fltune``."""

import sys

from fltune.federation.allocation import restart

if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:  # the other commands leave training to processes of their own
        restart()

    from fltune.cli import main

    main()
