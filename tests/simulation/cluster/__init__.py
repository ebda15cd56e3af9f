"""A controller and three brokers, each on a machine of its own, on one virtual loop."""
