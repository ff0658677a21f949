"""The files of deploy/: they parse, and their commands, options, ports, paths and names exist and agree."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
import yaml

from ibidem.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
HAPROXY = [DEPLOY / "haproxy.cfg", KUBERNETES / "haproxy.cfg"]
WORKLOADS = ("StatefulSet", "Deployment")


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))


def resources() -> list[dict[str, Any]]:
    files = sorted(KUBERNETES.glob("*.yaml"))
    return [document for file in files for document in yaml.safe_load_all(file.read_text("utf-8")) if document]


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for one in resources():
        if one["kind"] in WORKLOADS:
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]
        elif one["kind"] == "RayJob":
            cluster = one["spec"]["rayClusterSpec"]
            for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
                yield "ray", group["template"]["spec"]


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, pod in pods():
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            yield name, container


def command_lines() -> list[list[str]]:
    """Return the arguments of ibidem in all files."""
    found = [shlex.split(one["command"]) for one in compose()["services"].values() if "command" in one]
    found += [container["args"] for _, container in containers() if "args" in container]
    found += [shlex.split(one["spec"]["entrypoint"])[1:] for one in resources() if one["kind"] == "RayJob"]
    instructions = dockerfile()
    assert [words for name, words in instructions if name == "ENTRYPOINT"] == ['["ibidem"]']
    found += [yaml.safe_load(words) for name, words in instructions if name == "CMD"]
    return found


def dockerfile() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


@pytest.mark.parametrize("words", command_lines(), ids=lambda words: " ".join(words[:4]))
def test_commands_and_options_exist(words: list[str]) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert words[0] in commands
    known = {name for parameter in commands[words[0]].params for name in parameter.opts} | {"--help"}
    given = {word for word in words[1:] if re.fullmatch(r"--?[a-z][a-z-]*", word)}
    assert not given - known


def test_compose() -> None:
    services = compose()["services"]
    assert list(services) == ["proxy", "writer", "reader-1", "reader-2", "shard-1", "shard-2"]
    writers = [
        name
        for name, one in services.items()
        if "serve" in one.get("command", "") and not re.search(r"--follow|--read-only", one["command"])
    ]
    assert writers == ["writer"]
    for name, one in services.items():
        words = shlex.split(one.get("command", ""))
        if "--follow" in words:
            assert option(words, "--follow") == "http://writer:5000"
        if "serve" in words:
            assert option(words, "--port") == "5000"
            assert name in words or "--follow" in words, "others call the writer by its name"
            assert "--keys" in words
            assert "--without-keys" not in words
        if "build" in one:
            assert (DEPLOY / one["build"]["context"] / one["build"]["dockerfile"]).is_file()
            assert one["read_only"]
            assert one["cap_drop"] == ["ALL"]
        for used in one.get("secrets", ()):
            assert used in compose()["secrets"]
        for volume in one.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source in compose()["volumes"] or (DEPLOY / source).is_file()


def test_shards() -> None:
    """Both files have two shards with a secret, at the addresses that their comments give to the servers."""
    services = compose()["services"]
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    for addresses in (text, (KUBERNETES / "shards.yaml").read_text("utf-8")):
        assert "--shards shard-1:7001,shard-2:7001" in addresses
    found = {name: shlex.split(one["command"]) for name, one in services.items() if name.startswith("shard")}
    assert all("IBIDEM_SHARD_SECRET" in services[name]["environment"] for name in (*found, "writer", "reader-1"))
    assert all("${SHARDS:-}" in services[name]["command"] for name in ("writer", "reader-1", "reader-2"))
    started = {name: one for name, one in containers() if name.startswith("shard") and one["args"][0] == "shard"}
    for name, container in started.items():
        assert "IBIDEM_SHARD_SECRET" in [one["name"] for one in container["env"]], name
    for words in (found, {name: one["args"] for name, one in started.items()}):
        assert sorted(words) == ["shard-1", "shard-2"]
        for name, given in words.items():
            assert name.endswith(option(given, "--part"))
            assert option(given, "--listen").endswith(":7001")


def test_the_image_runs_without_root_and_checks_itself() -> None:
    instructions = dockerfile()
    last = max(number for number, (name, _) in enumerate(instructions) if name == "FROM")
    final = instructions[last:]
    assert [words for name, words in final if name == "USER"] == ["10001:10001"]
    assert not [words for name, words in final if name == "RUN" and "g++" in words], "no compiler in the image"
    assert ("EXPOSE", "5000") in final
    check = next(words for name, words in final if name == "HEALTHCHECK")
    assert "http://127.0.0.1:5000/health" in check
    for name, words in instructions:
        if name == "COPY" and not words.startswith("--from"):
            assert all((ROOT / source).exists() for source in words.split()[:-1]), words
    arguments = {words.partition("=")[0]: words.partition("=")[2] for name, words in instructions if name == "ARG"}
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    for list_of in (arguments["REQUIREMENTS"], *re.findall(r"--build-arg REQUIREMENTS=(\S+)", text)):
        assert (ROOT / list_of).is_file()


@pytest.mark.parametrize("path", HAPROXY, ids=["compose", "kubernetes"])
def test_the_proxy(path: Path) -> None:
    text = path.read_text("utf-8")
    from ibidem.serve import Limits

    seconds = {name: int(value) for name, value in re.findall(r"timeout ([a-z-]+) (\d+)s", text)}
    assert seconds["server"] > Limits().request_seconds
    assert seconds["http-request"] <= Limits().body_seconds
    assert "option http-buffer-request" in text
    assert "deny_status 404 if { path_beg /replication/ }" in text
    known = set(compose()["services"]) | {one["metadata"]["name"] for one in resources() if one["kind"] == "Service"}
    for host, port in re.findall(r"^ +server(?:-template \S+ \d+| \S+) ([a-z0-9-]+):(\d+)", text, re.MULTILINE):
        assert (host in known, port) == (True, "5000")
    names = set(re.findall(r"(?:use|default)_backend (\S+)", text))
    assert names == set(re.findall(r"^backend (\S+)", text, re.MULTILINE)) == {"readers", "writer"}


@pytest.mark.parametrize("path", HAPROXY, ids=["compose", "kubernetes"])
def test_haproxy_accepts_its_configuration(path: Path) -> None:
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("haproxy is not installed")
    done = subprocess.run([program, "-c", "-f", path], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_accepts_its_file(tmp_path: Path) -> None:
    command, docker = [shutil.which("docker-compose")], shutil.which("docker")
    if docker and subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0:
        command = [docker, "compose"]
    if command == [None]:
        pytest.skip("neither docker compose nor docker-compose is installed")
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    secrets = tmp_path / "deploy" / "secrets"
    secrets.mkdir(exist_ok=True)
    for one in compose()["services"].values():
        for name in one.get("env_file", ()):
            (tmp_path / "deploy" / name).write_text("IBIDEM_FOLLOW_KEY=key\n")
    for secret in compose()["secrets"].values():
        (tmp_path / "deploy" / secret["file"]).write_text("secret\n")
    arguments = [*command, "-f", tmp_path / "deploy" / "compose.yaml", "config", "-q"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_kustomize_builds_the_manifests() -> None:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not installed")
    done = subprocess.run([program, "kustomize", KUBERNETES], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    built = [one for one in yaml.safe_load_all(done.stdout) if one]
    assert {one["metadata"].get("namespace", "ibidem") for one in built} == {"ibidem"}
    configuration = next(one for one in built if one["kind"] == "ConfigMap")
    proxy = next(one for one in built if (one["kind"], one["metadata"]["name"]) == ("Deployment", "proxy"))
    assert proxy["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] == configuration["metadata"]["name"]


def test_the_manifests_fit_the_schemas_of_kubernetes() -> None:
    files = [
        path for path in sorted(KUBERNETES.glob("*.yaml")) if path.name not in ("kustomization.yaml", "learn.yaml")
    ]
    if (program := shutil.which("kubeconform")) is not None:
        arguments = [program, "-strict", *files]
    elif (program := os.environ.get("IBIDEM_KUBERNETES_VALIDATE") or shutil.which("kubernetes-validate")) is not None:
        arguments = [program, "--strict", *files]
    else:
        pytest.skip("neither kubeconform nor kubernetes-validate (of PyPI) is installed")
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "schema" not in done.stdout + done.stderr, "a kind without a schema was not checked"


def test_changes_go_to_the_writer() -> None:
    """Every route that changes something, or whose state one server keeps, has a rule in the proxy."""
    pytest.importorskip("fastapi")
    text = HAPROXY[0].read_text("utf-8")
    exact = set(re.search(r"acl changes path (.+)", text)[1].split())  # type: ignore[index]
    prefixes = [prefix for line in re.findall(r"acl \w+ path_beg (.+)", text) for prefix in line.split()]
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src/ibidem/serve/routes").glob("*.py"))
    changing = re.findall(r'@router\.(?:post|delete|put|patch)\(\s*"([^"]+)"', sources)
    assert len(changing) > 8
    stateless = {"/translate", "/detect", "/v2/translate"}
    unknown = [
        path for path in changing if path not in stateless | exact and not any(path.startswith(one) for one in prefixes)
    ]
    assert not [path for path in unknown if re.search("memor|suggest|document|glossar|job|file", path)], unknown


def test_kubernetes() -> None:
    found = resources()
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text("utf-8"))
    assert all((KUBERNETES / name).is_file() for name in listed["resources"])
    services = {one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "Service"}
    workloads = {one["metadata"]["name"]: one for one in found if one["kind"] in WORKLOADS}
    assert workloads["writer"]["spec"]["replicas"] == 1
    assert workloads["reader"]["spec"]["replicas"] == 2
    for name, one in workloads.items():
        spec = one["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == services[name]["selector"]
        ports = [port["containerPort"] for port in spec["template"]["spec"]["containers"][0]["ports"]]
        assert [port["targetPort"] for port in services[name]["ports"]] == ports
        assert spec.get("serviceName", name) in services
    for name, pod in pods():
        assert pod["securityContext"]["runAsNonRoot"], name
        volumes = {volume["name"] for volume in pod.get("volumes", ())} | {"data"}
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert {mount["name"] for mount in container.get("volumeMounts", ())} <= volumes
    for name in ("writer", "reader"):
        container = workloads[name]["spec"]["template"]["spec"]["containers"][0]
        assert container["livenessProbe"]["httpGet"]["path"] == "/health"
        assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
        words = container["args"]
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert str(Path(option(words, "--keys")).parent) in mounts
        probe = container["readinessProbe"]["httpGet"]["httpHeaders"][0]["value"]
        assert probe in [words[place + 1] for place, word in enumerate(words) if word == "--allow-host"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_steps_of_the_dockerfile(tmp_path: Path, tiny_folder: Path) -> None:
    """Without a docker daemon, RUN and COPY are run as a script in an empty folder; packages of Debian are skipped."""
    build, target = tmp_path / "build", tmp_path / "opt"
    build.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))},
        "REQUIREMENTS": "requirements-hashed-cpu.txt",
        "TORCH_INDEX": os.environ.get("IBIDEM_TORCH_INDEX", "https://pypi.org/simple"),
    }

    def place(text: str) -> str:
        return text.replace("/opt/ibidem", str(target))

    for name, words in dockerfile():
        if name == "COPY" and not words.startswith("--from"):
            *sources, to = words.split()
            for source in sources:
                path = ROOT / source
                if path.is_dir():
                    ignored = shutil.ignore_patterns("*.so", "__pycache__")
                    shutil.copytree(path, build / to, ignore=ignored)
                else:
                    shutil.copy(path, build / to)
        elif name == "RUN" and not words.startswith(("apt-get", "groupadd")):
            command = place(words)
            if command.startswith("python "):
                command = sys.executable + command.removeprefix("python")
            subprocess.run(["sh", "-ec", command], cwd=build, env=environment, check=True, timeout=1500)
    environment["PATH"] = f"{target}/bin:{environment['PATH']}"
    shown = subprocess.run(
        ["ibidem", "serve", "--help"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert "--follow" in shown.stdout
    native = subprocess.run(
        [target / "bin" / "python", "-c", "import ibidem.native as n; print(n.loaded_instructions())"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert native.stdout.strip() != "None", "the native library was not built"
    check = next(words for name, words in dockerfile() if name == "HEALTHCHECK")
    process = subprocess.Popen(
        ["ibidem", "serve", "-m", str(tmp_path / "data" / "it"), "--model", str(tiny_folder), "--port", "5000"],
        cwd=tmp_path,
        env=environment,
    )
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen("http://127.0.0.1:5000/ready", timeout=5) as answer:
                    assert answer.status == 200
                    break
            except OSError:
                time.sleep(0.2)
        command = yaml.safe_load(check[check.index("[") :])
        subprocess.run(command, env=environment, check=True, timeout=20)
    finally:
        process.terminate()
        process.wait(60)
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run(command, env=environment, check=True, timeout=20, stderr=subprocess.DEVNULL)
