#!/bin/sh
# As in the apache/kafka image, a container that is told nothing listens on every interface, for clients
# on the machine that published its port; its data lies in the folder meant for a volume. A server.properties
# in /mnt/shared/config is read; the environment wins over it.
set -eu

file="${BARNABAS_CONFIG:-/mnt/shared/config}/server.properties"
in_file() {
  [ -f "$file" ] && grep -Eq "^[[:space:]]*($1)[[:space:]]*[=:[:space:]]" "$file"
}

if [ -f "$file" ]; then
  set -- --config "$file" "$@"
fi
if [ -z "${KAFKA_LOG_DIRS:-}${KAFKA_LOG_DIR:-}${KAFKA_CFG_LOG_DIRS:-}${KAFKA_CFG_LOG_DIR:-}" ] &&
  ! in_file 'log\.dirs?'; then
  export KAFKA_LOG_DIRS=/var/lib/kafka/data
fi
if [ -z "${KAFKA_LISTENERS:-}${KAFKA_ADVERTISED_LISTENERS:-}${KAFKA_CFG_LISTENERS:-}${KAFKA_CFG_ADVERTISED_LISTENERS:-}" ] &&
  ! in_file '(advertised\.)?listeners'; then
  export KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092
fi
# Users, as bitnami's image takes them, are a line of JAAS here, of which the broker says more.
if [ -n "${KAFKA_CLIENT_USERS:-}" ] && ! env | grep -q '^KAFKA_.*_JAAS_CONFIG='; then
  echo "barnabas: KAFKA_CLIENT_USERS isn't read; write the users into a line of JAAS instead:" \
    "KAFKA_LISTENER_NAME_<LISTENER, with __ for _>_PLAIN_SASL_JAAS_CONFIG=org.apache.kafka.common.security.plain.PlainLoginModule" \
    "required user_${KAFKA_CLIENT_USERS%%,*}=\"password\";" >&2
  exit 2
fi
# Key stores and their passwords are files in a folder for secrets, of which the environment has the names.
secrets="${BARNABAS_SECRETS:-/etc/kafka/secrets}"
secret() {
  if [ ! -f "$secrets/$2" ]; then
    echo "barnabas: $1: there is no $secrets/$2" >&2
    exit 2
  fi
}
for store in KEYSTORE TRUSTSTORE; do
  eval "named=\${KAFKA_SSL_${store}_FILENAME:-}"
  if [ -n "$named" ]; then
    secret "KAFKA_SSL_${store}_FILENAME" "$named"
    export "KAFKA_SSL_${store}_LOCATION=$secrets/$named"
    unset "KAFKA_SSL_${store}_FILENAME"
  fi
done
for password in KEY KEYSTORE TRUSTSTORE; do
  eval "named=\${KAFKA_SSL_${password}_CREDENTIALS:-}"
  if [ -n "$named" ]; then
    secret "KAFKA_SSL_${password}_CREDENTIALS" "$named"
    export "KAFKA_SSL_${password}_PASSWORD=$(cat "$secrets/$named")"
    unset "KAFKA_SSL_${password}_CREDENTIALS"
  fi
done
exec "${BARNABAS:-/opt/barnabas/bin/barnabas}" "$@"
