"""Whole, real brokers in one process on a virtual clock, with virtual disks, connected through memory.

Everything follows from a seed. `python -m tests.simulation 7` runs seed 7 and prints what happened.
"""
