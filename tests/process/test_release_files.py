"""The files that make a release: workflows, the action, scripts, the Dockerfile, recipes. Each one's own tool checks
it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.ports import free_ports, is_listening
from tests.support.requirements import need_program
from tests.support.waiting import until
from tests.support.wire import Client

yaml = pytest.importorskip("yaml", reason="needs PyYAML, of the extra release")

from protocol.messages.metadata import MetadataRequest  # noqa: E402

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
SCRIPTS = [
    *sorted((ROOT / "action").glob("*.sh")),
    ROOT / "docker" / "entrypoint.sh",
    ROOT / "release" / "devcontainer" / "src" / "barnabas" / "install.sh",
    ROOT / ".ci" / "run",
]


def passes(*command: str | Path) -> None:
    ended = subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture
def render() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render", ROOT / "release" / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- By the tools that know their forms -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", WORKFLOWS),
        ("github-actions", [ROOT / "action.yml"]),
        ("dependabot", [ROOT / ".github" / "dependabot.yml"]),
        ("compose-spec", sorted((ROOT / "docker").glob("compose*.yaml"))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_has_the_form_that_its_reader_asks_for(schema: str, files: list[Path]) -> None:
    assert files
    passes(need_program("check-jsonschema"), "--builtin-schema", f"vendor.{schema}", *files)


def test_workflows_are_valid_for_github() -> None:
    passes(need_program("actionlint"), "-shellcheck", need_program("shellcheck"), *WORKFLOWS)


def test_workflows_and_the_action_give_nobody_more_than_they_need() -> None:
    passes(
        need_program("zizmor"),
        "--offline",
        "--quiet",
        "--min-severity",
        "low",
        ROOT / ".github",
        ROOT / "action.yml",
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_script_of_the_shell_holds_no_trap(script: Path) -> None:
    assert os.access(script, os.X_OK)
    passes(need_program("shellcheck"), script)


def test_the_dockerfile_follows_the_rules_for_them() -> None:
    passes(need_program("hadolint"), "--failure-threshold", "info", ROOT / "docker" / "Dockerfile")


# --- The workflows --------------------------------------------------------------------------------------------


def test_the_tested_pythons_are_those_in_the_labels() -> None:
    matrix = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))["jobs"]["python"][
        "strategy"
    ]
    labels = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert matrix["matrix"]["python"] == labels


def test_only_the_job_that_uploads_may_have_a_token_for_it_and_it_attests() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))["jobs"]
    assert jobs["pypi"]["permissions"] == {"id-token": "write"}
    assert "permissions" not in jobs["build"]
    (upload,) = (step for step in jobs["pypi"]["steps"] if "pypi-publish" in step["uses"])
    assert upload["with"] == {"attestations": True}
    (push,) = (step for step in jobs["image"]["steps"] if "build-push" in step.get("uses", ""))
    assert push["with"]["platforms"].split(",") == ["linux/amd64", "linux/arm64"]
    assert push["with"]["sbom"] is True
    assert push["with"]["provenance"] == "mode=max"


# --- Versions, recipes ----------------------------------------------------------------------------------------


def test_a_tag_is_released_only_where_version_and_changelog_say_the_same(render: ModuleType) -> None:
    version = render.version()
    dated = f"# Changelog\n\n## {version} (2026-12-01)\n\n- first\n"
    assert render.complaints(f"v{version}", dated) == []
    assert render.complaints("v9.9.9", dated) == [
        f"the tag is v9.9.9, and barnabas/__init__.py says {version}"
    ]
    assert render.complaints(f"v{version}", dated.replace("2026-12-01", "unreleased")) == [
        f"CHANGELOG.md says unreleased of {version}, where the date is to stand"
    ]
    assert render.complaints(f"v{version}", "## 9.9.9 (2026-12-01)") == [
        f"CHANGELOG.md doesn't begin with {version}"
    ]


def test_the_changelog_begins_with_the_version_that_is_worked_on(render: ModuleType) -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    heading = re.search(r"^## (\S+) \(", text, re.MULTILINE)
    assert heading is not None
    assert heading[1] == render.version()
    feature = ROOT / "release" / "devcontainer" / "src" / "barnabas" / "devcontainer-feature.json"
    assert json.loads(feature.read_text("utf-8"))["version"] == render.version()


def test_recipe_and_formula_name_the_archive_and_its_hash(tmp_path: Path, render: ModuleType) -> None:
    archive = tmp_path / f"barnabas-{render.version()}.tar.gz"
    archive.write_bytes(b"an archive")
    url = "https://example.org/us/barnabas/releases/download/v1"
    texts = {
        name: render.rendered((ROOT / "release" / name).read_text("utf-8"), archive, url)
        for name in render.TEMPLATES
    }
    digest = hashlib.sha256(b"an archive").hexdigest()
    recipe = yaml.safe_load(texts["conda-forge/recipe.yaml"])
    assert recipe["context"]["version"] == render.version()
    assert recipe["source"] == {"url": f"{url}/{archive.name}", "sha256": digest}
    assert recipe["about"]["homepage"] == "https://example.org/us/barnabas"
    formula = texts["homebrew/barnabas.rb"]
    assert f'url "{url}/{archive.name}"' in formula
    assert f'sha256 "{digest}"' in formula


def test_the_recipe_requires_the_wheels_requirements(render: ModuleType) -> None:
    recipe = (ROOT / "release" / "conda-forge" / "recipe.yaml").read_text("utf-8")
    project = (
        (ROOT / "pyproject.toml").read_text("utf-8").partition("\ndependencies = [")[2].partition("]")[0]
    )
    for name, bound in re.findall(r'"(\w+)>=([\d.]+)', project):
        assert f"    - {name} >={bound}\n" in recipe


# --- The action -----------------------------------------------------------------------------------------------


class Runner:
    """A stand-in for GitHub's runner. It has only what the action's steps use."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder = folder
        self._tools = tools
        self.steps: dict[str, dict[str, str]] = {}
        self.exported: dict[str, str] = {}
        self.path = ""

    def run(self, **inputs: str) -> str:
        """Run every step of the action that has a script, in order, and return what they print."""
        given = {name: str(what.get("default", "")) for name, what in ACTION["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        printed = ""
        for step in ACTION["runs"]["steps"]:
            if "run" in step:
                printed += self._step(step, given)
        return printed

    def _step(self, step: dict[str, object], inputs: dict[str, str]) -> str:
        def value(found: re.Match[str]) -> str:
            kind, _, rest = found[1].partition(".")
            if kind == "inputs":
                return inputs[rest]
            step_id, _, name = rest.partition(".outputs.")
            return self.steps[step_id][name]

        files = {name: self.folder / name for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH")}
        for file in files.values():
            file.write_text("")
        told = step.get("env", {})
        assert isinstance(told, dict)
        environment = {
            **os.environ,
            **{name: re.sub(r"\$\{\{ (.*?) \}\}", value, text) for name, text in told.items()},
            **{name: str(file) for name, file in files.items()},
            "GITHUB_ACTION_PATH": str(ROOT),
            "RUNNER_TOOL_CACHE": str(self._tools),
            "RUNNER_TEMP": str(self.folder),
            "KAFKA_NUM_PARTITIONS": "of another Kafka",
        }
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", str(step["run"])],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise AssertionError(ended.stdout + ended.stderr)
        outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        self.steps[str(step.get("id", ""))] = outputs
        self.exported |= dict(line.split("=", 1) for line in files["GITHUB_ENV"].read_text().splitlines())
        self.path += files["GITHUB_PATH"].read_text()
        return ended.stdout

    def end(self) -> None:
        pid = self.steps.get("start", {}).get("pid")
        if pid is not None:
            os.kill(int(pid), signal.SIGTERM)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder into which the action installs, one for all tests here."""
    return tmp_path_factory.mktemp("tools")


@pytest.fixture
def runner(tmp_path: Path, tools: Path) -> Iterator[Runner]:
    made = Runner(tmp_path, tools)
    yield made
    made.end()


def brokers(bootstrap: str) -> list[str]:
    with Client.of(bootstrap) as client:
        found = client.ask(MetadataRequest(topics=[]), 8).brokers
    return sorted(f"{each.host}:{each.port}" for each in found)


@pytest.mark.xdist_group("action")
def test_the_action_starts_a_broker_and_says_where_and_installs_once(runner: Runner) -> None:
    (port,) = free_ports(1)
    first = runner.run(python=sys.executable, extras="", port=str(port), settings="num.partitions=3\n\n")
    assert f"barnabas listens on 127.0.0.1:{port}" in first
    assert runner.steps["start"]["bootstrap"] == f"127.0.0.1:{port}"
    assert runner.exported == {"KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{port}"}
    assert brokers(f"127.0.0.1:{port}") == [f"127.0.0.1:{port}"]
    command = Path(runner.path.splitlines()[0]) / "barnabas"
    assert subprocess.run([command, "--version"], capture_output=True, check=True).stdout.startswith(
        b"barnabas "
    )
    assert [each.name for each in command.parent.iterdir()] == ["barnabas"]
    runner.end()
    until(lambda: not is_listening("127.0.0.1", port), "the broker has ended")
    marker = Path(runner.steps["key"]["folder"]) / "of the cache"
    marker.touch()
    runner.run(python=sys.executable, extras="", port="0")
    assert marker.exists()


@pytest.mark.xdist_group("action")
def test_the_action_starts_several_brokers(runner: Runner) -> None:
    runner.run(python=sys.executable, extras="", port="0", brokers="3")
    addresses = runner.steps["start"]["bootstrap"].split(",")
    assert len(addresses) == 3
    until(lambda: brokers(addresses[0]) == sorted(addresses), "all brokers are known")


@pytest.mark.xdist_group("action")
def test_an_action_that_does_not_start_says_why(runner: Runner) -> None:
    with pytest.raises(
        AssertionError, match=r"::error::barnabas has ended(.|\n)*did you mean num\.partitions"
    ):
        runner.run(python=sys.executable, extras="", port="0", settings="num.partition=3")


def test_the_key_of_the_cache_is_that_of_system_python_extras_and_sources(runner: Runner) -> None:
    key = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "key")
    runner._step(key, {"python": sys.executable, "extras": "cli,metrics"})
    found = runner.steps["key"]["key"]
    runner._step(key, {"python": sys.executable, "extras": "cli"})
    assert runner.steps["key"]["key"] != found
    assert re.fullmatch(r"barnabas-\w+-\w+-3\.\d+\.\w+-cli_metrics-[0-9a-f]{20}", found)


# --- The feature for dev containers ---------------------------------------------------------------------------


@pytest.mark.xdist_group("action")
def test_the_feature_installs_a_broker_that_runs_beside_the_containers_programs(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    environment = {
        **clean,
        "PREFIX": str(tmp_path),
        "VERSION": str(ROOT),
        "EXTRAS": "",
        "TMPDIR": str(tmp_path),
    }
    subprocess.run([SCRIPTS[-2]], env=environment, capture_output=True, check=True)
    listening = {
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKA_LOG_DIRS": str(tmp_path / "data"),
    }
    with subprocess.Popen(
        [tmp_path / "share" / "barnabas" / "autostart.sh", "sh", "-c", "echo the container runs; cat"],
        env={**environment, **listening},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as container:
        try:
            assert container.stdout is not None
            assert container.stdout.readline() == "the container runs\n"
            until(lambda: is_listening("127.0.0.1", port), "a broker")
            assert brokers(f"127.0.0.1:{port}") == [f"127.0.0.1:{port}"]
        finally:
            os.killpg(container.pid, signal.SIGKILL)
