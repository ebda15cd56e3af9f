"""Connections to other nodes: to the controller, to leaders of partitions, to coordinators."""
