"""One booking over every wire: a filler before the result where the wire shows one, one booking, and a reply that is whole, once, after the
server was killed in the middle of it. Prints a table.

The arguments are the binary `segue`, and the folder with the virtual environments. It runs in `venv`, with the packages mcp, python-socketio
and websocket-client; `wires_openai.py` and `a2a_client.py` run the SDKs that have environments of their own.
"""

import asyncio
import concurrent.futures
import http.server
import json
import pathlib
import queue
import subprocess
import sys
import threading
import time
import urllib.request
import uuid

import socketio
import websocket
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client

from segue_server import KEY, ROOT, Server

QUESTION = "Which boats go from Arnvik to Skelby tomorrow?"
FOUND = "there are 3 boats"
SUMMARY = "Shall I book it?"
BOOKED = "Booked! Your reference is"
TIMEOUT = 60
ENVIRONMENTS = pathlib.Path(sys.argv[2])


class Wire:
    """A client. `send` begins a message and returns at once; what comes is put into `parts` as (time, text), and `None` at the end of the turn.
    `id` is that of the conversation in the store."""

    # Whether a text arrives before the turn has ended.
    shows_filler = True

    def __init__(self, server, conversation):
        self.server, self.conversation, self.parts = server, conversation, queue.Queue()

    def put(self, text):
        if text:
            self.parts.put((time.monotonic(), text))

    def end(self, *_):
        self.parts.put((time.monotonic(), None))

    def say(self, text):
        """The parts of the answer to a message."""
        self.send(text)
        return self.rest()

    def rest(self):
        parts = []
        while True:
            at, text = self.parts.get(timeout=TIMEOUT)
            if text is None:
                return parts
            parts.append((at, text))

    def reconnect(self):
        """After the end of the server: gets what was missed, as clients of this wire do. Returns what the user sees of the reply by now."""
        self.parts = queue.Queue()
        return text_of(self.say(self.last))


def text_of(parts):
    """Messages and deltas as one text, with one space between words."""
    return " ".join(" ".join(text for _, text in parts).split())


def in_background(work):
    threading.Thread(target=work, daemon=True).start()


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=TIMEOUT)


class RestStream(Wire):
    """REST with events. A message that is repeated under its id gets its reply."""

    name, path = "rest, stream=sse", "rest/webhook?stream=sse"

    def send(self, text):
        self.last, self.message_id = text, getattr(self, "message_id", 0) + (text != getattr(self, "last", None))
        in_background(self.request)

    def body(self):
        return {"sender": self.conversation, "message": self.last, "message_id": f"{self.conversation}-{self.message_id}"}

    def request(self):
        try:
            with post(f"{self.server.url()}/webhooks/{self.path}", self.body()) as response:
                for line in response:
                    if line.startswith(b"data: "):
                        self.event(json.loads(line[6:]))
        except OSError:
            pass
        self.end()

    def event(self, event):
        if event["type"] == "message_delta":
            self.put(event["text"])
        elif event["type"] == "message":
            self.put(event["message"].get("text"))

    @property
    def id(self):
        return self.conversation


class Rest(RestStream):
    """REST with one list at the end."""

    name, path, shows_filler = "rest", "rest/webhook", False

    def request(self):
        try:
            with post(f"{self.server.url()}/webhooks/{self.path}", self.body()) as response:
                for message in json.load(response):
                    self.put(message.get("text"))
        except OSError:
            pass
        self.end()


class Callback(RestStream):
    """Replies are posted to a URL, each when it is complete. What was not taken is posted again after a restart."""

    name, path = "callback", "callback/webhook"

    def send(self, text):
        self.last = text
        outside.wires[self.conversation] = self
        with post(f"{self.server.url()}/webhooks/{self.path}", {"sender": self.conversation, "message": text}):
            pass

    def rest(self):
        """There is no event for the end of a turn: a question or a receipt is."""
        parts = []
        while not any(end in text_of(parts) for end in (FOUND, "How many", SUMMARY, BOOKED)):
            parts.append(self.parts.get(timeout=TIMEOUT))
        return parts

    def reconnect(self):
        return text_of(self.rest())


class OpenAi(Wire):
    """Chat completions. A request that is repeated gets its reply."""

    name = "openai"

    def __init__(self, server, conversation):
        super().__init__(server, conversation)
        self.messages = []
        self.connect()

    def connect(self):
        client = pathlib.Path(__file__).with_name("wires_openai.py")
        command = [ENVIRONMENTS / "venv-openai/bin/python", client, self.server.base_url(self.conversation), KEY]
        self.client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def send(self, text):
        self.last = text
        self.messages.append({"role": "user", "content": text})
        self.request()

    def request(self):
        self.client.stdin.write(json.dumps(self.messages) + "\n")
        self.client.stdin.flush()
        in_background(self.read)

    def read(self):
        answer = ""
        for line in self.client.stdout:
            part = json.loads(line)
            if part is None:
                break
            if isinstance(part, str):
                answer += part
                self.put(part)
        if answer:
            self.messages.append({"role": "assistant", "content": answer})
        self.end()

    def reconnect(self):
        self.rest()
        # What came is cut: the client asks again.
        if self.messages[-1]["role"] == "assistant":
            self.messages.pop()
        self.request()
        return text_of(self.rest())

    @property
    def id(self):
        return f"openai:{self.conversation}"


class Socket(Wire):
    """WebSocket: a client that comes back continues after the last event that it got."""

    name = "websocket"

    def __init__(self, server, conversation):
        super().__init__(server, conversation)
        self.after, self.shown = None, {}
        self.connect()

    def connect(self):
        after = f"&after={self.after}" if self.after else ""
        url = f"{self.server.url().replace('http', 'ws')}/webhooks/websocket/connect?sender={self.conversation}{after}"
        self.socket = websocket.create_connection(url, timeout=TIMEOUT)
        in_background(self.read)

    def send(self, text):
        self.socket.send(json.dumps({"message": text}))

    def read(self):
        try:
            while frame := self.socket.recv():
                event = json.loads(frame)
                self.after = event.get("position", self.after)
                if event["type"] == "message_delta":
                    self.put(event["text"])
                elif event["type"] == "message":
                    self.put(event["message"].get("text"))
                if event["type"] in ("message_end", "message"):
                    # Whatever was streamed before is replaced.
                    self.shown[event["id"]] = event["message"].get("text") or ""
                if event["type"] == "turn_finished":
                    self.end()
        except (OSError, websocket.WebSocketException):
            pass

    def reconnect(self):
        self.connect()
        self.rest()
        return " ".join(self.shown.values())

    @property
    def id(self):
        return self.conversation


class SocketIo(Wire):
    """Socket.IO, as Rasa's widget: a session that comes back gets what it has missed."""

    name = "socketio"

    def __init__(self, server, conversation):
        super().__init__(server, conversation)
        self.shown = []
        self.connect()

    def connect(self):
        self.socket = socketio.Client(reconnection=False)
        self.socket.on("bot_uttered", self.uttered)
        self.socket.on("bot_message_delta", lambda delta: self.put(delta["text"]))
        confirmed = queue.Queue()
        self.socket.on("session_confirm", confirmed.put)
        self.socket.connect(self.server.url())
        self.socket.emit("session_request", {"session_id": self.conversation})
        confirmed.get(timeout=TIMEOUT)

    def uttered(self, message):
        self.shown.append(message.get("text") or "")
        self.put(message.get("text"))

    def send(self, text):
        self.shown.clear()
        self.socket.emit("user_uttered", {"message": text, "session_id": self.conversation})

    def rest(self):
        parts = []
        while not any(end in text_of([(0, text) for text in self.shown]) for end in (FOUND, "How many", SUMMARY, BOOKED)):
            parts.append(self.parts.get(timeout=TIMEOUT))
        return parts

    def reconnect(self):
        self.connect()
        self.rest()
        return " ".join(self.shown)

    @property
    def id(self):
        return f"sio:{self.conversation}"


class Mcp(Wire):
    """The tool `converse` of the MCP server. A call that is repeated under its key gets its result; fillers are progress."""

    name = "mcp"

    def __init__(self, server, conversation):
        super().__init__(server, conversation)
        self.known = {}

    def send(self, text):
        self.last, self.key = text, str(uuid.uuid4())
        in_background(self.request)

    def request(self):
        try:
            asyncio.run(self.call())
        except BaseException:  # The end of the server ends the call.
            pass
        self.end()

    async def call(self):
        async def progress(_, __, message):
            self.put(message)

        async with streamablehttp_client(f"{self.server.url()}/mcp") as (read, write, _):
            async with ClientSession(read, write) as session:
                await session.initialize()
                arguments = {"message": self.last, **self.known}
                meta = {"segue/idempotencyKey": self.key}
                result = await session.call_tool("converse", arguments, progress_callback=progress, meta=meta)
                self.known = {"conversation_id": result.structuredContent["conversation_id"]}
                self.result = " ".join(content.text for content in result.content if content.type == "text")
                self.put(self.result)

    def reconnect(self):
        # The call of the SDK goes on waiting: this is another client, with the key of the call.
        again = Mcp(self.server, self.conversation)
        again.last, again.key = self.last, self.key
        in_background(again.request)
        again.rest()
        # Progress only says what is being done: the result has the reply.
        return again.result

    @property
    def id(self):
        return self.known["conversation_id"]


class A2a(Wire):
    """A2A with its SDK: fillers are status updates. After a break the client sends its message again, under its id."""

    name = "a2a"

    def __init__(self, server, conversation):
        super().__init__(server, conversation)
        self.known = {"context": str(uuid.uuid4())}
        self.connect()

    def connect(self):
        client = pathlib.Path(__file__).with_name("a2a_client.py")
        command = [ENVIRONMENTS / "venv-a2a/bin/python", client, self.server.url()]
        self.client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.client.stdout.readline() == "ready\n"

    def send(self, text):
        self.last, self.message_id = text, str(uuid.uuid4())
        self.request()

    def request(self):
        command = {"do": "stream", "text": self.last, "id": self.message_id, **self.known}
        self.client.stdin.write(json.dumps(command) + "\n")
        self.client.stdin.flush()
        in_background(self.read)

    def read(self):
        answer = json.loads(self.client.stdout.readline().removeprefix("answer "))
        for event in answer.get("ok", []):
            self.task(event)
            for text in texts_in(event):
                self.put(text)
        self.end()

    def task(self, event):
        for part in event.values():
            if task := part.get("taskId") or (part.get("id") if "status" in part else None):
                self.known["task"] = task

    def reconnect(self):
        self.rest()
        self.known.pop("task", None)
        self.request()
        return text_of(self.rest())

    @property
    def id(self):
        return f"a2a:{self.known['context']}"


def texts_in(value):
    """All texts of parts, in order."""
    if isinstance(value, dict):
        if isinstance(value.get("parts"), list):
            yield from (part["text"] for part in value["parts"] if part.get("text"))
        else:
            for inner in value.values():
                yield from texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)


class Outside(http.server.BaseHTTPRequestHandler):
    """Takes the replies of the callback channel."""

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        outside.wires[message["recipient_id"]].put(message.get("text"))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


def book(wire):
    """Books, and checks that a filler comes before the result."""
    parts = wire.say(QUESTION)
    text = text_of(parts)
    assert FOUND in text, text
    found = next(at for at, _ in parts if FOUND in text_of([part for part in parts if part[0] <= at]))
    has_filler = parts[0][0] < found and FOUND not in parts[0][1]
    assert has_filler or not wire.shows_filler, parts
    assert SUMMARY not in text_of(wire.say("Book the early one, please"))
    assert SUMMARY in text_of(wire.say("two"))
    assert BOOKED in text_of(wire.say("yes"))
    assert wire.server.bookings(wire.id) == 1, wire.server.bookings(wire.id)
    return True


def survive(wire):
    """The server is killed when the reply has begun, or while it is made where nothing is shown before its end."""
    wire.send(QUESTION)
    if wire.shows_filler and not isinstance(wire, A2a):
        wire.parts.get(timeout=TIMEOUT)
    else:
        # The clients of these wires show nothing before the end. A search takes a second.
        time.sleep(0.7)
    wire.server.kill()
    wire.server.start()
    text = wire.reconnect()
    assert text.count(FOUND) == 1, text
    return True


outside = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Outside)
outside.wires = {}
in_background(outside.serve_forever)
CREDENTIALS = f"""
websocket:
socketio: {{session_persistence: true, stream: true}}
callback: {{url: "http://127.0.0.1:{outside.server_port}/"}}
mcp:
"""
with Server(sys.argv[1], CREDENTIALS, "a2a_server: {description: Books ferry crossings.}\n") as server:
    print(f"{'wire':18} {'filler first':13} {'booked once':12} whole after kill -9")
    failed = []

    def holds(test, kind):
        try:
            return test(kind(server, f"{test.__name__}-{kind.name.split(',')[0]}-{uuid.uuid4().hex[:6]}"))
        except Exception as error:
            failed.append(f"{kind.name} {test.__name__}: {type(error).__name__}: {error}")
            return False

    kinds = [Rest, RestStream, OpenAi, Socket, SocketIo, Callback, Mcp, A2a]
    kinds = [kind for kind in kinds if len(sys.argv) == 3 or kind.name in sys.argv[3:]]
    with concurrent.futures.ThreadPoolExecutor(len(kinds)) as pool:
        books = list(pool.map(lambda kind: holds(book, kind), kinds))
    for kind, booked in zip(kinds, books):
        survives = holds(survive, kind)
        filler = "not shown" if not kind.shows_filler else "yes" if booked else "NO"
        print(f"{kind.name:18} {filler:13} {'yes' if booked else 'NO':12} {'yes' if survives else 'NO'}", flush=True)
    if failed:
        sys.exit("\n".join(failed))
