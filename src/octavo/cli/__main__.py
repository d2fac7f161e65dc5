"""python -m octavo.cli is octavo."""

import sys

from octavo.cli import main

sys.exit(main())
