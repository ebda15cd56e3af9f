"""The files of the logs and brokers that tests make in this process: one object, on which a test sets its faults."""

from storage.disk_files import DiskFiles

files = DiskFiles()
