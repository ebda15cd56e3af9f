"""The console: a page in the browser that shows a Kafka, or a folder of one, and what happens in it over time."""
