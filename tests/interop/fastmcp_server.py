"""An MCP server built with the official Python SDK, with tools that work and tools that fail.

    python fastmcp_server.py                 stdio
    python fastmcp_server.py http PORT       streamable HTTP on 127.0.0.1:PORT, path /mcp; port 0 is a free port, and the line
                                             "Uvicorn running on http://127.0.0.1:…" on standard error contains it
"""

import os
import sys
from typing import Any

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import NotificationOptions
from mcp.types import ToolAnnotations
from pydantic import BaseModel

OVER_HTTP = sys.argv[1:2] == ["http"]
PORT = int(sys.argv[2]) if len(sys.argv) > 2 else 0
# The level INFO prints the address of the HTTP server; on stdio it would only print a line per request.
server = FastMCP("interop-fastmcp", host="127.0.0.1", port=PORT, log_level="INFO" if OVER_HTTP else "WARNING")

# By default FastMCP does not announce list changes (`tools.listChanged`).
announce = server._mcp_server.create_initialization_options
server._mcp_server.create_initialization_options = lambda options=None, experimental=None: announce(
    NotificationOptions(tools_changed=True), experimental
)


class Quote(BaseModel):
    """A price with its currency."""

    item: str
    pence: int
    currency: str


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def quote(item: str, count: int = 1) -> Quote:
    """Structured: the result has an output schema and comes back as an object."""
    return Quote(item=item, pence=250 * count, currency="GBP")


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def lookup(key: str) -> dict[str, Any]:
    """Structured: a dictionary is returned without a wrapper."""
    return {"key": key, "found": key == "known", "nested": {"list": [1, 2, 3]}}


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def total(numbers: list[int]) -> int:
    """Structured: a value that is not an object is wrapped as {"result": …}."""
    return sum(numbers)


@server.tool(structured_output=False, annotations=ToolAnnotations(readOnlyHint=True))
def describe(thing: str) -> str:
    """Unstructured: text only, no output schema."""
    return f"A {thing} of the usual kind."


@server.tool()
def refuse(reason: str) -> str:
    """Fails: the result is marked as an error and contains the reason."""
    raise ValueError(reason)


@server.tool()
async def hang() -> str:
    """Never answers; ends only when the call is cancelled or the session is closed."""
    await anyio.sleep_forever()
    return "unreachable"


@server.tool(annotations=ToolAnnotations(destructiveHint=True))
def die(code: int = 3) -> str:
    """Ends the process immediately, without an answer."""
    os._exit(code)


@server.tool()
async def grow(name: str, context: Context) -> str:
    """Adds a tool with this name and notifies the client that the list has changed."""

    def added(text: str) -> str:
        return f"{name}: {text}"

    server.add_tool(added, name=name, description="Added at run time.")
    await context.session.send_tool_list_changed()
    return f"added the tool {name}"


@server.tool()
async def shrink(name: str, context: Context) -> str:
    """Removes a tool and notifies the client that the list has changed."""
    server.remove_tool(name)
    await context.session.send_tool_list_changed()
    return f"removed the tool {name}"


if __name__ == "__main__":
    server.run("streamable-http" if OVER_HTTP else "stdio")
