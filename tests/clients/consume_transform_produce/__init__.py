"""Three workers of one group that read, transform and write in transactions, and that are killed while they do it.

`worker.py` is one of them, `crew.py` keeps them going and kills them and their broker, `accounting.py` is the judge.
"""
