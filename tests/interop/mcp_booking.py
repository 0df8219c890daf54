"""An MCP client built with the Python SDK. It calls one flow as a tool and answers the assistant's questions by elicitation.

Arguments: the command of a server on stdio. Prints one JSON object: the elicitation requests, and the result of the call.
"""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client

ANSWERS = ["the early boat from Arnvik to Skelby tomorrow", "for two people"]


async def main(arguments):
    asked = []
    answers = iter(ANSWERS)

    async def elicit(_, request: types.ElicitRequestParams):
        asked.append({"message": request.message, "schema": request.requestedSchema})
        field = request.requestedSchema["required"][0]
        value = "yes" if field == "booking_confirmed" else next(answers)
        return types.ElicitResult(action="accept", content={field: value})

    async with stdio_client(StdioServerParameters(command=arguments[0], args=arguments[1:])) as (read, write):
        async with ClientSession(read, write, elicitation_callback=elicit) as session:
            await session.initialize()
            result = await session.call_tool("book_a_crossing", {})
    print(json.dumps({"asked": asked, "texts": [block.text for block in result.content], "error": result.isError}))


asyncio.run(main(sys.argv[1:]))
