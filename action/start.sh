#!/usr/bin/env bash
# Starts barnabas beside the steps that follow, and says its address once clients can connect.
#
# FOLDER is where `install.sh` has put it. PORT, BROKERS, SETTINGS and STARTUP_TIMEOUT_S as the inputs of the action.
set -euo pipefail
: "${FOLDER:?}" "${PORT:?}" "${BROKERS:?}" "${SETTINGS?}" "${STARTUP_TIMEOUT_S:?}"
log="$(mktemp "${RUNNER_TEMP:-/tmp}/barnabas-XXXXXX.log")"

arguments=()
if [ "$BROKERS" -gt 1 ]; then
  arguments+=(cluster --brokers "$BROKERS")
else
  arguments+=(--temporary)
fi
arguments+=(--port "$PORT")
while IFS= read -r setting; do
  [ -z "${setting//[[:space:]]/}" ] || arguments+=(-o "$setting")
done <<<"$SETTINGS"

# What the job has in its environment of other Kafkas isn't meant for this one.
clean=()
while IFS= read -r name; do
  clean+=(-u "$name")
done < <(compgen -e KAFKA_ || true)
env ${clean[@]+"${clean[@]}"} nohup "$FOLDER/bin/barnabas" "${arguments[@]}" >"$log" 2>&1 </dev/null &
broker=$!

deadline=$((SECONDS + STARTUP_TIMEOUT_S))
until bootstrap="$(grep -Eom1 'connect to [^ ;]+;' "$log")"; do
  if ! kill -0 "$broker" 2>/dev/null; then
    echo "::error::barnabas has ended instead of starting" >&2
    cat "$log" >&2
    exit 1
  fi
  if [ "$SECONDS" -ge "$deadline" ]; then
    echo "::error::barnabas hasn't started within $STARTUP_TIMEOUT_S seconds" >&2
    cat "$log" >&2
    kill "$broker"
    exit 1
  fi
  sleep 0.05
done
bootstrap="${bootstrap#connect to }"
bootstrap="${bootstrap%;}"
{
  echo "bootstrap=$bootstrap"
  echo "log=$log"
  echo "pid=$broker"
} >>"$GITHUB_OUTPUT"
echo "KAFKA_BOOTSTRAP_SERVERS=$bootstrap" >>"$GITHUB_ENV"
echo "barnabas listens on $bootstrap"
