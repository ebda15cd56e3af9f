"""What tests of several floors share."""
