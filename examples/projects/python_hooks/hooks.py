"""The hooks of the agent `booker`: an HTTP server for the protocol of docs/how-to/hooks-in-python.md. Needs only the standard library."""
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BOOKED = {}  # bookings by the id of the call, so that a repeated call makes no second booking
text = lambda name: {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


def describe(_):
    return {
        "hooks": ["process_input", "process_tool_output", "prompt"],
        "tools": [
            {"name": "find_boat", "description": "Finds a boat by its name.", "effect": "read", "parameters": text("name")},
            {"name": "book_boat", "description": "Books a boat.", "effect": "write", "parameters": text("boat")},
        ],
    }


def process_input(call):
    # Without the slot `reference` the model cannot fill it. Tools get the metadata, the model does not. `say` is sent immediately.
    slots = {name: value for name, value in call["input"]["slots"].items() if name != "reference"}
    return {"slots": slots, "metadata": {"tenant": "north"}, "say": ["One moment."]}


def process_tool_output(call):
    fills = {"find_boat": "boat", "book_boat": "reference"}
    done = [r for r in call["batch"]["current"] if r["status"] == "done" and r["tool"] in fills]
    return {"events": [{"event": "slot", "name": fills[r["tool"]], "value": r["result"][fills[r["tool"]]]} for r in done]}


def prompt(call):
    return {"prompt": call["prompt"] + "\nCall boats by their names."}


def tool(call):
    if call["tool"] == "find_boat":
        return {"result": {"boat": "MS " + call["arguments"]["name"]}}
    if call["metadata"].get("tenant") != "north":
        return {"error": "this tenant may not book"}
    return {"result": BOOKED.setdefault(call["id"], {"reference": "NW-%d" % (len(BOOKED) + 1)})}


HOOKS = {hook.__name__: hook for hook in (describe, process_input, process_tool_output, prompt, tool)}


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        call = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps(HOOKS[call["hook"]](call)).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9000), Server)
    print("hooks on http://127.0.0.1:%d/hooks" % server.server_port, flush=True)
    server.serve_forever()
