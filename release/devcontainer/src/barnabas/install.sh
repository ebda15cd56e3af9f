#!/bin/sh
# Run as root while a dev container is built, with the options as VERSION, EXTRAS and AUTOSTART.
#
# PREFIX is where everything goes (a test has one of its own).
set -eu
prefix="${PREFIX:-/usr/local}"
version="${VERSION:-latest}"
extras="${EXTRAS-cli,compression}"

fits() {
  "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}
python=""
for name in python3 python3.14 python3.13 python3.12 python3.11; do
  if fits "$name"; then
    python="$name"
    break
  fi
done
if [ -z "$python" ] && command -v apt-get >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3 python3-venv
  rm -rf /var/lib/apt/lists/*
  if fits /usr/bin/python3; then
    python=/usr/bin/python3
  fi
fi
if [ -z "$python" ]; then
  echo "barnabas needs Python 3.11 or later, with venv: add the feature for Python, or take a newer image." >&2
  exit 1
fi

case "$version" in
  latest) what="barnabas${extras:+[$extras]}" ;;
  */*) what="$version${extras:+[$extras]}" ;;
  *) what="barnabas${extras:+[$extras]}==$version" ;;
esac
share="$prefix/share/barnabas"
mkdir -p "$share" "$prefix/bin"
"$python" -m venv "$share/python"
"$share/python/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$what"
ln -sf "$share/python/bin/barnabas" "$prefix/bin/barnabas"

# The entry point of the container: it starts the broker, where it is to, and goes on with what the container runs.
cat >"$share/autostart.sh" <<SCRIPT
#!/bin/sh
if [ "${AUTOSTART:-true}" = true ]; then
  nohup "$prefix/bin/barnabas" >"\${TMPDIR:-/tmp}/barnabas.log" 2>&1 </dev/null &
fi
exec "\$@"
SCRIPT
chmod +x "$share/autostart.sh"
"$prefix/bin/barnabas" --version
