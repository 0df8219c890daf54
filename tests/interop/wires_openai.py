"""OpenAI's Python SDK for wires.py: reads a list of messages per line, and prints the parts of the answer as they come, one JSON text per line,
then `null`. The arguments are the base URL and the key."""

import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=0)
for line in sys.stdin:
    try:
        stream = client.chat.completions.create(model="northwater_ferries", messages=json.loads(line), stream=True)
        for chunk in stream:
            if text := chunk.choices[0].delta.content:
                print(json.dumps(text), flush=True)
    except Exception as error:  # The script decides whether it was expected.
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
    print("null", flush=True)
