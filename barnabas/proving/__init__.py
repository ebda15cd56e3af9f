"""`barnabas.prove` and `barnabas prove`: test at each step of the protocol whether a program works exactly once."""
