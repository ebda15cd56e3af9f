"""What a node has of the world around it: time, chance, work in the background, the network, names of hosts.

Nothing else in the broker reads a clock, draws a random number, asks for the running loop or looks up a host. A test
gives a node an environment of its own, and has a whole broker on a clock that it moves.
"""
