"""The world around a node: time, chance, work in the background, the network, names of hosts.

Nothing else in the broker reads a clock, draws a random number, asks for the running loop or looks up a host. A test
gives a node its own environment, and so runs a whole broker on a clock that the test moves.
"""
