"""What each client does first on a broker that nobody has asked anything: see `test_first_contact.py`."""
