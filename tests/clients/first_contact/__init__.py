"""Each client's first steps on a broker that has served nobody yet: see `test_first_contact.py`."""
