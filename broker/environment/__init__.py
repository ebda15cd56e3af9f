"""What a node has of the world around it: time, chance, work in the background, the network.

Nothing else in the broker reads a clock, draws a random number or asks for the running loop. A test gives a node an
environment of its own, and has a whole broker on a clock that it moves.
"""
