"""Programs that consume, transform and produce, right and with classic mistakes, for `barnabas prove`."""
