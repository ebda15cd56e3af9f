"""`python -m barnabas` is the command `barnabas`."""

from barnabas.launcher import main

main()
