"""Configuration: what a setting is, where its value comes from, and what is in force.

Below: `definitions`, `rows` and the `*_definitions` say what Kafka's settings are, `parsing` and `validators` read a
value as Kafka's ConfigDef does, `properties` and `environment` find values. Above them `BrokerConfig` holds what is in
force, and `topic_config` and `group_config` what is for a topic and a group. `checks` says what can't be, and on which
occasion it is asked. On top, `assembly` makes a configuration at the start, `dynamic_settings` follows the metadata
log, and `describe` and `alterations` serve the admin APIs.
"""
