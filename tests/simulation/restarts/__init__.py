"""What is visible before a restart is visible after it: random requests of every API that changes something, restarts
in between, and one picture of all that can be asked for."""
