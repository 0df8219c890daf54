"""A host of others: books a crossing at the assistant through the Python SDK of MCP.

Arguments: `stdio COMMAND ARGUMENTS…`, or `http ADDRESS [TOKEN]`. Prints one JSON object: what was seen.
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

    async def answers(_, request: types.ElicitRequestParams):
        asked.append({"message": request.message, "schema": request.requestedSchema})
        field, schema = next(iter(request.requestedSchema["properties"].items()))
        # What an agent wants to know is answered in words, a confirmation by its first value.
        value = schema["oneOf"][0]["const"] if "oneOf" in schema else schema.get("enum", [LINES[1]])[0]
        return types.ElicitResult(action="accept", content={field: value})

    seen = {"turns": []}
    async with streams(arguments) as (read, write):
        async with ClientSession(read, write, elicitation_callback=answers) as session:
            begun = await session.initialize()
            seen["instructions"] = begun.instructions
            seen["tools"] = [tool.model_dump(exclude_none=True) for tool in (await session.list_tools()).tools]
            talk = {}
            for line in LINES:
                progress = []

                async def news(_, __, message):
                    progress.append(message)

                result = await session.call_tool("converse", {"message": line, **talk}, progress_callback=news)
                talk = {"conversation_id": result.structuredContent["conversation_id"]}
                seen["turns"].append(
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
            seen["resources"] = [str(resource.uri) for resource in resources]
            seen["transcript"] = (await session.read_resource(resources[0].uri)).contents[0].text
            pets = await session.call_tool("pet_question", {})
            seen["pets"] = [block.text for block in pets.content]
    seen["asked"] = asked
    print(json.dumps(seen))


asyncio.run(main(sys.argv[1:]))
