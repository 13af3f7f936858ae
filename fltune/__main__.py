"""``python -m fltune``."""

from fltune.cli import main

if __name__ == "__main__":
    main()
