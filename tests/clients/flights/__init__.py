"""All 336,776 flights that left New York City in 2013, through every codec and client, with crashes between.

`python -m tests.clients.flights` is the whole of it, and `test_flights.py` does the same with a sample.
"""
