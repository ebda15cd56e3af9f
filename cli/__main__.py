"""`python -m cli`, and every `barnabas COMMAND` except `cluster`, `prove` and `format`."""

import sys

from cli.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
