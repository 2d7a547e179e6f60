"""`python -m kgrun.cli`: the same as `kgrun`."""

import sys

from kgrun.cli.entry import main

sys.exit(main())
