"""The files that `pip install` puts on a machine, from a wheel and from the checkout, and their working."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.messages.metadata import ApiVersionsRequest
from tests.support.ports import free_ports, is_listening
from tests.support.requirements import need_program
from tests.support.waiting import until
from tests.support.wire import Client, Outcome

ROOT = Path(__file__).parents[2]
FLOORS = {"protocol", "storage", "coordinator", "broker", "cli"}
READY_S = 60

# One worker of xdist gets all of these: the wheel is built once.
pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist made of the checkout, and the wheel made of that sdist."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A fresh virtual environment in which nothing is installed."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment")
    return tmp_path / "environment"


def run(*command: str | Path) -> str:
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def site_packages(environment: Path) -> Path:
    return next((environment / "lib").glob("python*/site-packages"))


def lend_dependencies(environment: Path) -> None:
    """Have it find what this interpreter has installed: its modules, but not its own `.pth` files."""
    lent = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (site_packages(environment) / "lent.pth").write_text("\n".join(lent) + "\n")


def install(environment: Path, *what: str | Path) -> None:
    pip = [sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "--no-input"]
    run(*pip, "install", "--no-index", "--no-deps", "--ignore-installed", *what)


@pytest.fixture
def installed(built: Path, environment: Path) -> Path:
    """An environment with the wheel."""
    install(environment, next(built.glob("*.whl")))
    return environment


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder from which the checkout can't be imported by chance."""
    folder = tmp_path / "outside"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return folder


def api_keys(bootstrap: str) -> set[int]:
    """The keys in the answer to an ApiVersions v0 request."""
    with Client.of(bootstrap) as client:
        sent = client.send(ApiVersionsRequest(), 0)
        answer = client.receive(sent)
    assert not isinstance(answer, Outcome)
    assert answer.correlation_id == sent.correlation_id
    assert answer.message.error_code == 0
    return {each.api_key for each in answer.message.api_keys}


def modules_below(folder: str) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py")]


def test_the_wheel_puts_one_package_into_site_packages(installed: Path) -> None:
    landed = {entry.name for entry in site_packages(installed).iterdir()}
    assert {name for name in landed if not name.endswith(".dist-info")} == {"barnabas"}
    assert {entry.name for entry in (site_packages(installed) / "barnabas" / "server").iterdir()} == FLOORS
    assert (site_packages(installed) / "barnabas" / "py.typed").exists()


def test_the_wheel_holds_the_checkouts_modules_and_no_tests(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        packed = {name for name in wheel.namelist() if name.endswith(".py")}
    floors = {
        f"barnabas/server/{path.relative_to(ROOT)}" for name in FLOORS for path in (ROOT / name).rglob("*.py")
    }
    front = {str(path.relative_to(ROOT)) for path in (ROOT / "barnabas").rglob("*.py")}
    assert packed == floors | front


def test_the_wheel_holds_the_consoles_page_with_its_licences(built: Path) -> None:
    page = ROOT / "cli" / "console" / "static"
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        packed = {name for name in wheel.namelist() if "/static/" in name}
    assert packed == {
        f"barnabas/server/{path.relative_to(ROOT)}" for path in page.rglob("*") if path.is_file()
    }
    assert "barnabas/server/cli/console/static/vendor/htm.LICENSE" in packed


def test_the_sdist_holds_everything_to_build_and_to_test(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "Makefile", "tests/conftest.py"} <= packed
    assert not {
        name for name in packed if name.startswith((".venv", "dist/", ".git/")) or name.endswith(".pyc")
    }


def test_wheel_and_sdist_are_ones_that_an_index_takes(built: Path) -> None:
    run(need_program("twine"), "check", "--strict", *built.iterdir())


FROM_NOTHING_S = 20
TRIES = 3
"""One of so many has to be quick: the network and the other tests may hold up any of them."""


def test_a_first_record_is_read_within_twenty_seconds_from_nothing(built: Path, outside: Path) -> None:
    """By uvx, with an empty cache: fetch the wheel and all that it needs, start a broker, send a record, read it."""
    wheel = f"barnabas[cli] @ {next(built.glob('*.whl')).as_uri()}"
    barnabas = [need_program("uvx"), "--python", sys.executable, "--from", wheel, "barnabas"]
    took_s: list[float] = []
    while not took_s or (took_s[-1] >= FROM_NOTHING_S and len(took_s) < TRIES):
        took_s.append(from_nothing_s(barnabas, outside / f"cache-{len(took_s)}"))
    assert min(took_s) < FROM_NOTHING_S, took_s


def from_nothing_s(barnabas: list[str], cache: Path) -> float:
    """How long it takes with that cache, which isn't there yet."""
    (port,) = free_ports(1)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    environment = {**clean, "UV_CACHE_DIR": str(cache), "BARNABAS_BOOTSTRAP": f"127.0.0.1:{port}"}
    began_s = time.monotonic()
    fetched = subprocess.run([*barnabas, "--version"], env=environment, capture_output=True, text=True)
    if fetched.returncode and "error sending request" in fetched.stderr.lower():
        pytest.skip("needs a package index, which can't be reached")
    assert fetched.returncode == 0, fetched.stderr
    broker = subprocess.Popen(
        [*barnabas, "--temporary", "--port", str(port)], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: is_listening("127.0.0.1", port), "a broker", READY_S)
        subprocess.run([*barnabas, "produce", "orders"], env=environment, input=b"hello\n", check=True)
        read = subprocess.run(
            [*barnabas, "consume", "orders", "-n", "1"], env=environment, capture_output=True, check=True
        )
        took_s = time.monotonic() - began_s
    finally:
        broker.terminate()
        broker.wait(READY_S)
    assert read.stdout == b"hello\n"
    return took_s


def test_the_front_of_the_wheel_runs_the_broker_of_the_wheel(installed: Path, outside: Path) -> None:
    lend_dependencies(installed)
    (outside / "use.py").write_text(
        "import sys, barnabas\n"
        "with barnabas.Broker() as broker:\n"
        "    print(barnabas.__file__, broker.bootstrap, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [installed / "bin" / "python", "use.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        package, bootstrap = process.stdout.readline().split()
        assert Path(package).is_relative_to(installed)
        assert {0, 1, 3, 18} <= api_keys(bootstrap)
        process.communicate()
    assert process.returncode == 0


def test_the_command_of_the_wheel_runs_the_broker_until_a_signal(installed: Path, outside: Path) -> None:
    lend_dependencies(installed)
    assert bootstrap_of_command(installed / "bin" / "barnabas", outside)


def test_the_broker_of_the_wheel_has_its_console_beside_it(installed: Path, outside: Path) -> None:
    pytest.importorskip("uvicorn", reason="needs uvicorn, which is not installed")
    lend_dependencies(installed)
    (port,) = free_ports(1)
    command = [installed / "bin" / "barnabas", "--temporary", "--port", "0", "--console", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until(lambda: is_listening("127.0.0.1", port), "a console", READY_S)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_S)
        connection.request("GET", "/app.js")
        assert connection.getresponse().read() == (ROOT / "cli/console/static/app.js").read_bytes()
        connection.close()
    finally:
        process.terminate()
        assert process.wait(READY_S) == 0
    assert not is_listening("127.0.0.1", port)


def test_an_editable_install_runs_the_checkout(environment: Path, outside: Path) -> None:
    lend_dependencies(environment)
    install(environment, "--no-build-isolation", "--editable", ROOT)
    landed = {entry.name for entry in site_packages(environment).iterdir()}
    assert not {"barnabas", *FLOORS} & landed
    found = run(environment / "bin" / "python", "-c", "import barnabas; print(barnabas.__file__)")
    assert Path(found.strip()) == ROOT / "barnabas" / "__init__.py"
    assert bootstrap_of_command(environment / "bin" / "barnabas", outside)


def bootstrap_of_command(command: Path, folder: Path) -> str:
    """Run it on a free port until it answers, then stop it with SIGTERM."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [command, "--data", folder / "data", "--port", "0", "--control-fd", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        try:
            ours.settimeout(READY_S)
            line = ours.recv(65536).decode()
            bootstrap = str(json.loads(line)["bootstrap"])
            assert {0, 1, 3, 18} <= api_keys(bootstrap)
        finally:
            process.terminate()
            assert process.wait(READY_S) == 0
    return bootstrap
