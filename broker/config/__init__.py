"""Configuration: what a setting is, where its value comes from, and what is in force.

`definitions` and `rows` say what Kafka's settings are, `parsing` and `validators` read a value as Kafka's
ConfigDef does, `properties` and `environment` find values, `assembly` puts them together into a
`BrokerConfig`, `topic_config` resolves a topic's, `describe` and `alterations` answer the admin APIs.
"""
