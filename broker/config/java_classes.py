"""Kafka's own Java classes that a setting may name while the broker runs, since none is loaded here.

Kafka looks a name up on its class path; whether the class fits shows later. What stands here are Kafka's own classes
that fit some setting: others, of a user or of Java itself, are to us not there. At the start any name is taken, with a
warning (`assembly`).
"""

from __future__ import annotations

METRIC_REPORTERS = frozenset(
    ("org.apache.kafka.common.metrics.JmxReporter", "org.apache.kafka.tools.PushHttpMetricsReporter")
)
"""MetricsReporters that can be made without arguments."""

_SECURITY = (
    "authenticator.DefaultKafkaPrincipalBuilder",
    "authenticator.DefaultLogin",
    "authenticator.SaslClientCallbackHandler",
    "authenticator.SaslServerCallbackHandler",
    "kerberos.KerberosClientCallbackHandler",
    "kerberos.KerberosLogin",
    "oauthbearer.BrokerJwtValidator",
    "oauthbearer.ClientCredentialsJwtRetriever",
    "oauthbearer.ClientJwtValidator",
    "oauthbearer.DefaultJwtRetriever",
    "oauthbearer.DefaultJwtValidator",
    "oauthbearer.FileJwtRetriever",
    "oauthbearer.JwtBearerJwtRetriever",
    "oauthbearer.OAuthBearerLoginCallbackHandler",
    "oauthbearer.OAuthBearerValidatorCallbackHandler",
    "oauthbearer.internals.OAuthBearerRefreshingLogin",
    "oauthbearer.internals.OAuthBearerSaslClientCallbackHandler",
    "oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
    "oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    "plain.internals.PlainServerCallbackHandler",
    "scram.internals.ScramServerCallbackHandler",
    "ssl.DefaultSslEngineFactory",
)

CLASSES = METRIC_REPORTERS | {f"org.apache.kafka.common.security.{name}" for name in _SECURITY}
"""What a setting of type CLASS may name."""
