"""``python -m collage``: the same as the command ``collage``."""

import sys

from collage.cli import main

sys.exit(main())
