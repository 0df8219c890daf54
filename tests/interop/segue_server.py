"""The server `segue run` with the assistant of the repository's root, a ferry company, for clients of its channels."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The tool that books.
TOOL = "book_crossing"
KEY = "key-of-the-tests"
# How long a request must stay open before a booking begins. Short, so that the tests are.
HOLD = 1.5


class Server:
    def __init__(self, binary, credentials="", more_endpoints=""):
        self.binary = pathlib.Path(binary).resolve()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="segue-openai-"))
        self.project = self.folder / "project"
        self.project.mkdir()
        shutil.copy(ROOT / "config.yml", self.project)
        shutil.copytree(ROOT / "flows" / "ferries", self.project / "flows" / "ferries")
        endpoints = (ROOT / "endpoints.yml").read_text()
        arguments = "args: [demo, ferries]"
        assert endpoints.count(arguments) == 1, "endpoints.yml has changed"
        slow = endpoints.replace(arguments, 'args: [demo, ferries, --slow, "1000"]')
        (self.project / "endpoints.yml").write_text(slow + more_endpoints)
        (self.project / "credentials.yml").write_text(
            f"rest:\nopenai:\n  auth_token: ${{SEGUE_KEY}}\n  hold_writes_ms: {int(HOLD * 1000)}\n{credentials}"
        )
        self.store = f"sqlite:{self.folder / 'conversations.db'}"
        self.port = 0
        self.start()

    def environment(self):
        path = f"{self.binary.parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "SEGUE_KEY": KEY}

    def start(self):
        command = [self.binary, "run", "--port", str(self.port), "--store", self.store, self.project]
        self.process = subprocess.Popen(command, env=self.environment(), stderr=subprocess.PIPE, text=True)
        log = []
        for line in self.process.stderr:
            log.append(line)
            if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        raise RuntimeError("the server ended:\n" + "".join(log))

    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def base_url(self, conversation=None):
        return f"http://127.0.0.1:{self.port}/v1" + (f"/c/{conversation}" if conversation else "")

    def kill(self):
        """Ends the server as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def bookings(self, conversation):
        """How often the tool that books was called in a conversation, by its id in the store."""
        command = [self.binary, "trace", conversation, "--store", self.store, "--format", "json", self.project]
        trace = subprocess.run(command, env=self.environment(), capture_output=True, text=True)
        assert trace.returncode == 0, trace.stderr
        events = [event for turn in json.loads(trace.stdout) for event in turn["events"]]
        return sum(event["event"] == "tool_executed" and event["tool_name"] == TOOL for event in events)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
