"""The output of `barnabas inspect` for each kind of file."""
