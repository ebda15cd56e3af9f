"""Configuration: what a setting is, where its value comes from, and what is in force.

Below: `definitions` says what a setting is and reads a value as Kafka's ConfigDef does, `broker_definitions` has
Kafka's settings as rows, `given_settings` and `listeners` find values. Above them `BrokerConfig` holds what is in
force, and `topic_config`, `group_config` and `client_metrics_config` what is for a topic, a group, a subscription.
`setting_checks` says what can't be, and on which occasion it is asked. On top, `assembly` makes a configuration at
the start, and `describe` and `alterations` serve the admin APIs; the latter follows the metadata log, too.
"""
