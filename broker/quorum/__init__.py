"""The controller's own listeners, for the cluster's brokers."""
