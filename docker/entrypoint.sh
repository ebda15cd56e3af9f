#!/bin/sh
# As in the apache/kafka image, a container that is told nothing listens on every interface, for clients
# on the machine that published its port; its data lies in the folder meant for a volume.
set -eu

export KAFKA_LOG_DIRS="${KAFKA_LOG_DIRS:-/var/lib/kafka/data}"
if [ -z "${KAFKA_LISTENERS:-}${KAFKA_ADVERTISED_LISTENERS:-}${KAFKA_CFG_LISTENERS:-}${KAFKA_CFG_ADVERTISED_LISTENERS:-}" ]; then
  export KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092
fi
exec "${BARNABAS:-/opt/barnabas/bin/barnabas}" "$@"
