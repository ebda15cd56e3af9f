"""Helpers that tests of several floors share."""
