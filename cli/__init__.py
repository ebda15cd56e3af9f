"""The command line for people: commands that talk to a Kafka, or look into its files."""
