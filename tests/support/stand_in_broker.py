"""A process that talks to the front as the broker does, and misbehaves according to `-o behaviour=…`."""

import argparse
import json
import os
import shutil
import signal
import socket
import sys


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--control-fd", type=int)
    parser.add_argument("--data")
    parser.add_argument("--temporary", action="store_true")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--config")
    parser.add_argument("--log-level")
    parser.add_argument("-o", action="append", default=[])
    options = parser.parse_args()
    if options.check:
        return
    behaviour = dict(pair.split("=", 1) for pair in options.o).get("behaviour", "good")
    print("arguments:", json.dumps(sys.argv[1:]), file=sys.stderr, flush=True)
    print("path:", json.dumps(sys.path), file=sys.stderr, flush=True)
    control = socket.socket(fileno=options.control_fd)

    if behaviour == "fails":
        sys.exit("barnabas: port 9092 is in use")
    if behaviour == "never ready":
        signal.pause()

    server = socket.create_server((options.host, options.port))
    bootstrap = f"{options.host}:{server.getsockname()[1]}"
    with open(os.path.join(options.data, "starts"), "a") as starts:
        starts.write("start\n")
    ready = {"bootstrap": bootstrap, "listeners": {"PLAINTEXT": bootstrap}, "pid": os.getpid()}
    control.sendall(json.dumps(ready).encode() + b"\n")

    if behaviour == "ends by itself":
        sys.exit(3)
    asked = control.recv(1000)
    if not asked and options.temporary:
        shutil.rmtree(options.data)
    if asked:
        assert json.loads(asked)["ask"] == "stop"
    if behaviour == "stops badly":
        sys.exit(9)


main()
