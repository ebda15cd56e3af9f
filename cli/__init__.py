"""The command line for people: what one types to talk to a Kafka, and to look into its files."""
