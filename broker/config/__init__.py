"""Configuration: what a setting is, where its value comes from, and what is in force.

At the bottom, `definitions` says what a setting is and reads a value as Kafka's ConfigDef does,
`broker_definitions` has Kafka's settings as rows, and `given_settings` and `listeners` find values. Above
them, `BrokerConfig` holds what is in force, and `topic_config`, `group_config` and `client_metrics_config`
cover a topic, a group, a subscription. `setting_checks` says what is invalid, and when each check runs. On
top, `assembly` makes a configuration at the start, and `describe` and `alterations` serve the admin APIs; the
latter follows the metadata log, too.
"""
