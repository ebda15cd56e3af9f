"""`barnabas.prove` and `barnabas prove`: test a program's exactly once at each step of the protocol."""
