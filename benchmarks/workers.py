"""The processes that compute: one for each group of peers, in the Python of its environment."""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
START_LIMIT = 180.0  # seconds: TensorFlow is imported from a cold disk


class WorkerError(Exception):
    """What a worker's function raised, or that it died or took too long."""


class Worker:
    """A process that runs worker.py; its functions are called with `ask`."""

    def __init__(self, python: str, peers: list[str], environment: dict[str, str]) -> None:
        self.peers = peers
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [python, str(ROOT / "worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | environment,
            start_new_session=True,  # so that what it starts can be ended with it
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                self._answers.put(pickle.load(self._process.stdout))
        except (EOFError, OSError, pickle.UnpicklingError):
            self._answers.put(None)

    def ask(self, function: str, *arguments: Any, limit: float | None = None) -> Any:
        """The result of a function of worker.py; a process that takes longer than `limit` seconds is ended."""
        assert self._process.stdin is not None
        try:
            pickle.dump((function, arguments), self._process.stdin)
            self._process.stdin.flush()
            answer = self._answers.get(timeout=limit)
        except queue.Empty:
            self.end()
            raise WorkerError(f"did not finish in {limit:.0f} s") from None
        except OSError:
            answer = None
        if answer is None:
            self.end()
            raise WorkerError(f"the process died: {self._last_words()}")
        state, result = answer
        if state != "ok":
            raise WorkerError(result)
        return result

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else f"exit status {self._process.poll()}"

    def end(self) -> None:
        """End the process and all that it has started."""
        if self.alive:
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()


class Workers:
    """Workers for groups of peers, started when they are asked for, and again after they were ended."""

    def __init__(self, pythons: dict[str, str], environment: dict[str, str]) -> None:
        self._pythons, self._environment = pythons, environment
        self._workers: dict[str, Worker] = {}

    def get(self, name: str, environment: str, peers: list[str]) -> Worker:
        """The worker of this name; its peers are started."""
        worker = self._workers.get(name)
        if worker is None or not worker.alive:
            worker = self._workers[name] = Worker(self._pythons[environment], peers, self._environment)
            worker.ask("start", peers, limit=START_LIMIT)
        return worker

    def end(self) -> None:
        for worker in self._workers.values():
            worker.end()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
