"""Whole brokers, the real ones, in one process on a virtual clock, with virtual disks, connected through memory.

All that happens follows from a seed. `python -m tests.simulation 7` runs seed 7 and says what happened.
"""
