"""What can be wrong with settings. `table` says which check is asked when; each of them stands in a file by subject.

What a single value may be is no matter of this room: `parsing` and `validators` read it by its definition.
"""
