"""Everything visible before a restart is visible after it: random requests to every API that changes something,
restarts in between, and one picture of everything that can be asked."""
