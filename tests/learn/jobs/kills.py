"""Kills workers, nodes and drivers of learning at random moments of every stage: each run must end with the same bytes.

The learning runs as it does for a user: a driver process with a local executor, or with a Ray cluster of two nodes on
this machine. A stage is recognised by its work folder. The last line of output is a JSON object with the kills of each
stage and target, and the failures.

    python kills.py MODEL CORPUS SCRATCH SEED KILLS SECONDS local|ray|ray-head

With ray-head, the head of the cluster is killed once, in extraction: the driver ends, and on a new cluster the same
command finishes the memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from ibidem.errors import MemoryFolderError
from ibidem.memory import COMPACTOR_ARTEFACT, Memory
from ibidem.model import load_model
from learn.jobs import configurations
from learn.jobs.configurations import CONFIGURATIONS, content, run

# The stages of each configuration in which something is killed, with the pattern of their work folders.
FOLDERS = {"extract": "extract-*", "cluster": "cluster-*", "compact": "reconstruct-*", "prune": "neighbours-*"}
STAGES = {
    "network": ["extract", "cluster", "compact", "prune", "index"],
    "none": ["extract", "prune", "index"],
    "given": ["extract", "index"],
}
KILLS_A_RUN = 8
LIMIT_SECONDS = 900.0


class Cluster:
    """A Ray cluster of two nodes on this machine, the second of which can be killed."""

    def __init__(self) -> None:
        import ray
        from ray.cluster_utils import Cluster as RayCluster

        self._ray = ray
        self._options: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 << 20}
        for left in (3, 2, 1, 0):
            try:
                self._cluster = RayCluster(
                    initialize_head=True, head_node_args={**self._options, "include_dashboard": False}
                )
                self._node = self._cluster.add_node(**self._options)
                break
            except Exception as error:  # a busy machine may not start it within Ray's own limit
                print(f"Ray did not start ({error!r:.100})", file=sys.stderr, flush=True)
                if not left:
                    raise
        self.address = str(self._cluster.address)

    def kill_node(self) -> None:
        """Kill the raylet of the second node with all its children, and start another node."""
        raylet = self._node.all_processes["raylet"][0].process.pid
        for pid in [*children(raylet), raylet]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(Exception):  # what is left of the node
            self._cluster.remove_node(self._node, allow_graceful=False)
        self._node = self._cluster.add_node(**self._options)

    def kill_head(self) -> None:
        """Kill the control service of the cluster."""
        os.kill(self._cluster.head_node.all_processes["gcs_server"][0].process.pid, signal.SIGKILL)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._cluster.shutdown()


def children(pid: int) -> list[int]:
    """Return the process numbers of all descendants."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                child = int(stat.parent.name)
                found += [child, *children(child)]
    return found


def stage_of(path: Path, stages: list[str]) -> str:
    """Return the stage that runs: that of a work folder, or the index if all stages before it are committed."""
    for name, pattern in FOLDERS.items():
        if any(path.glob(f"work/{pattern}")):
            return name
    try:
        memory = Memory.open(path) if Memory.exists(path) else None
    except MemoryFolderError:
        return "starting"
    if memory is None or not memory.complete or not set(stages[:-1]) <= set(memory.manifest.stages):
        return "starting"
    return "done" if "index" in memory.manifest.stages else "index"


def kill_worker(path: Path, random: Random) -> bool:
    """Kill one of the workers that have named themselves."""
    marks = list(path.glob("work/*/running-*.json"))
    random.shuffle(marks)
    for mark in marks:
        with contextlib.suppress(OSError, ValueError, KeyError):
            os.kill(int(json.loads(mark.read_text())["worker"].rpartition(":")[2]), signal.SIGKILL)
            return True
    return False


class Harness:
    def __init__(self, model: str, corpus: Path, scratch: Path, seed: int, on: str) -> None:
        self.random = Random(seed)
        self.on, self.model, self.corpus, self.scratch = on, model, corpus, scratch
        self.cluster = Cluster() if on.startswith("ray") else None
        self.kills: Counter[str] = Counter()
        self.failures: list[str] = []
        self.runs = 0
        torch.set_num_threads(1)
        configurations.set_block_sizes()
        loaded = load_model(model, device="cpu")
        self.expected: dict[str, Any] = {}
        self.compactor = scratch / "compactor.safetensors"
        scratch.mkdir(parents=True)
        for name in ("pca", *STAGES):
            path = scratch / f"reference-{name}"
            memory = run(loaded, corpus, path, name, compactor=self.compactor if name == "given" else None)
            self.expected[name] = content(path)
            if name == "pca":
                stored = memory.artefact(COMPACTOR_ARTEFACT)
                assert stored is not None
                shutil.copyfile(stored.path, self.compactor)

    def start(self, name: str, path: Path) -> subprocess.Popen[bytes]:
        on = f"ray:{self.cluster.address}" if self.cluster is not None else "local"
        # Not as a script: workers import the functions of tasks by the name of their module.
        script = "from learn.jobs.configurations import main; main()"
        command = [sys.executable, "-c", script, self.model, str(self.corpus), str(path), name, on]
        command += [str(self.compactor)] if name == "given" else []
        log = (self.scratch / "driver.log").open("ab")
        return subprocess.Popen(command, stdout=log, stderr=log)

    def learn(self, wanted: int) -> None:
        """Learn one memory, and kill something in up to KILLS_A_RUN of its stages."""
        self.runs += 1
        random, path = self.random, self.scratch / f"run-{self.runs}"
        name = random.choice(["network", "network", "none", "given"])
        plan = sorted(random.choices(range(len(STAGES[name])), k=min(wanted, KILLS_A_RUN)))
        stages = [STAGES[name][place] for place in plan]
        driver = self.start(name, path)
        began = time.monotonic()
        aim, delay, seen, target = None, 0.0, 0.0, ""
        while time.monotonic() - began < LIMIT_SECONDS:
            if driver.poll() is not None:
                if driver.returncode == 0:
                    break
                self.failures.append(f"run {self.runs} ({name}): the driver ended with {driver.returncode}")
                return
            order = STAGES[name]
            now = stage_of(path, order)
            while stages and now in order and order.index(stages[0]) < order.index(now):
                stages.pop(0)  # that stage is over
            if stages and now == stages[0]:
                if aim != (now, len(stages)):
                    aim, delay, seen = (now, len(stages)), random.uniform(0, 0.6), time.monotonic()
                    target = self.choose(now, divided=CONFIGURATIONS[name].index_shards > 1)
                if time.monotonic() - seen >= delay and self.kill(target, path, driver):
                    stages.pop(0)
                    self.kills[f"{now} {target}"] += 1
                    if target == "driver":
                        driver = self.start(name, path)
            time.sleep(0.01)
        else:
            driver.kill()
            self.failures.append(f"run {self.runs} ({name}): it did not end within {LIMIT_SECONDS:.0f} s")
        driver.wait()
        if Memory.open(path).verify() or content(path) != self.expected[name]:
            self.failures.append(f"run {self.runs} ({name}): other bytes than those of one process")
        else:
            shutil.rmtree(path)

    def lose_head(self) -> None:
        """Learn one memory, kill the head of the cluster, and learn on a new cluster what is left."""
        assert self.cluster is not None
        self.runs, path = 1, self.scratch / "run"
        driver = self.start("none", path)
        began = time.monotonic()
        while stage_of(path, STAGES["none"]) != "extract" and time.monotonic() - began < LIMIT_SECONDS:
            time.sleep(0.01)
        self.cluster.kill_head()
        self.kills["extract head"] += 1
        # Ray ends the driver when the head was away for a minute.
        if driver.wait(LIMIT_SECONDS) == 0:
            self.failures.append("the driver ended without an error")
        self.cluster.close()
        self.cluster = Cluster()
        if (code := self.start("none", path).wait(LIMIT_SECONDS)) != 0:
            self.failures.append(f"the second driver ended with {code}")
        elif Memory.open(path).verify() or content(path) != self.expected["none"]:
            self.failures.append("other bytes than those of one process")

    def choose(self, stage: str, *, divided: bool) -> str:
        """Choose what to kill in a stage; the driver builds an index alone that is not divided."""
        targets = ["driver"] if stage == "index" and not divided else ["worker", "worker", "driver"]
        if self.cluster is not None:
            targets.append("node")
        return self.random.choice(targets)

    def kill(self, target: str, path: Path, driver: subprocess.Popen[bytes]) -> bool:
        """Kill something, and return whether there was such a thing."""
        if target == "worker":
            return kill_worker(path, self.random)
        if target == "node":
            assert self.cluster is not None
            self.cluster.kill_node()
            return True
        if driver.poll() is not None:
            return False
        driver.kill()
        driver.wait()
        return True


def main() -> None:
    model, corpus, scratch, seed, kills, seconds, on = sys.argv[1:]
    # Drivers, and the workers of a Ray cluster that this process starts, import the modules of the tests too.
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    end = time.monotonic() + float(seconds)
    harness = Harness(model, Path(corpus), Path(scratch), int(seed), on)
    try:
        if on == "ray-head":
            harness.lose_head()
            kills = "0"
        while harness.kills.total() < int(kills) and time.monotonic() < end and len(harness.failures) < 3:
            harness.learn(int(kills) - harness.kills.total())
            print(harness.runs, dict(harness.kills), harness.failures, file=sys.stderr, flush=True)
    finally:
        if harness.cluster is not None:
            harness.cluster.close()
    report = {"on": on, "seed": int(seed), "runs": harness.runs, "kills": harness.kills.total()}
    print(json.dumps({**report, "by": dict(sorted(harness.kills.items())), "failures": harness.failures}))


if __name__ == "__main__":
    main()
