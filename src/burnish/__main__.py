"""``python -m burnish`` is the same as the command ``burnish``."""

from burnish.cli.main import main

if __name__ == "__main__":
    main()
