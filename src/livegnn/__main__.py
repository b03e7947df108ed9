"""`python -m livegnn`, the same as `livegnn`."""

import sys

from livegnn.cli.app import main

sys.exit(main())
