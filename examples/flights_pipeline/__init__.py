"""Flights through PySpark, exactly once: `make pipeline`, or `python -m examples.flights_pipeline`.

    flights ──► join with weather and airlines ──► flights-enriched ──► delays by day and airline ──► flights-delays

Both arrows out of Spark are `ExactlyOnceKafkaSink`s. What comes out is drawn as a PNG.
"""
