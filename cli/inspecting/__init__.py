"""What `barnabas inspect` shows of each kind of file."""
