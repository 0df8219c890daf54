"""An MCP client built with the Python SDK. It books a crossing with the tool `converse`.

Arguments: `stdio COMMAND ARGUMENTS…` or `http URL [TOKEN]`. Prints one JSON object: tools, turns, transcript and elicitation requests.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

LINES = [
    "I want to book the early boat from Arnvik to Skelby tomorrow",
    "for two people",
    "yes",
]


@asynccontextmanager
async def streams(arguments):
    if arguments[0] == "stdio":
        async with stdio_client(StdioServerParameters(command=arguments[1], args=arguments[2:])) as (read, write):
            yield read, write
    else:
        headers = {"Authorization": f"Bearer {arguments[2]}"} if len(arguments) > 2 else {}
        async with streamablehttp_client(arguments[1], headers=headers) as (read, write, _):
            yield read, write


async def main(arguments):
    asked = []

    async def elicit(_, request: types.ElicitRequestParams):
        asked.append({"message": request.message, "schema": request.requestedSchema})
        field, schema = next(iter(request.requestedSchema["properties"].items()))
        # A text answers an agent's question; the first value answers a confirmation.
        value = schema["oneOf"][0]["const"] if "oneOf" in schema else schema.get("enum", [LINES[1]])[0]
        return types.ElicitResult(action="accept", content={field: value})

    output = {"turns": []}
    async with streams(arguments) as (read, write):
        async with ClientSession(read, write, elicitation_callback=elicit) as session:
            initialized = await session.initialize()
            output["instructions"] = initialized.instructions
            output["tools"] = [tool.model_dump(exclude_none=True) for tool in (await session.list_tools()).tools]
            conversation = {}
            for line in LINES:
                progress = []

                async def on_progress(_, __, message):
                    progress.append(message)

                call = {"message": line, **conversation}
                result = await session.call_tool("converse", call, progress_callback=on_progress)
                conversation = {"conversation_id": result.structuredContent["conversation_id"]}
                output["turns"].append(
                    {
                        "texts": [block.text for block in result.content],
                        "data": result.structuredContent,
                        "error": result.isError,
                        "progress": progress,
                    }
                )
                if "Booked" in json.dumps(result.structuredContent):
                    break
            resources = (await session.list_resources()).resources
            output["resources"] = [str(resource.uri) for resource in resources]
            output["transcript"] = (await session.read_resource(resources[0].uri)).contents[0].text
            pets = await session.call_tool("pet_question", {})
            output["pets"] = [block.text for block in pets.content]
    output["asked"] = asked
    print(json.dumps(output))


asyncio.run(main(sys.argv[1:]))
