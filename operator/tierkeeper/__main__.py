"""``python -m tierkeeper``."""

from tierkeeper.cli import main

if __name__ == "__main__":
    main()
