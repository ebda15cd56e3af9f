"""The console: a page in the browser that shows a Kafka, or a Kafka folder, and what happens in it over time."""
