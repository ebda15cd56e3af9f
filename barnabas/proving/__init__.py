"""`barnabas.prove` and `barnabas prove`: a program's exactly once, tried at each step of the protocol."""
