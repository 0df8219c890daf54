"""An A2A client built with a2a-sdk, 1.x or 0.3: `a2a_client.py URL [rest | grpc]`. With A2A_TOKEN set, it sends that bearer token.

It prints `ready`, reads one JSON command per line from standard input, and prints one answer per line, `answer {"ok": …}` or
`answer {"error": …}`:

{"do": "card"|"send"|"stream"|"get"|"list"|"cancel"|"subscribe"|"push"|"pushes", "text": …, "task": …, "context": …, "id": …, "url": …}
"""

import asyncio
import json
import os
import sys
import uuid

import httpx

URL = sys.argv[1]
BINDING = "HTTP+JSON" if "rest" in sys.argv[2:] else "GRPC" if "grpc" in sys.argv[2:] else "JSONRPC"
TOKEN = os.environ.get("A2A_TOKEN")

try:
    from a2a.types import a2a_pb2 as pb
    from google.protobuf.json_format import MessageToDict

    NEW = True
except ImportError:
    NEW = False

from a2a.client import A2ACardResolver, ClientConfig, ClientFactory


def http():
    headers = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
    return httpx.AsyncClient(timeout=60, headers=headers)


def channel(url):
    import grpc

    def with_token(details):
        metadata = [*(details.metadata or ()), ("authorization", f"Bearer {TOKEN}")] if TOKEN else details.metadata
        return grpc.aio.ClientCallDetails(
            details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
        )

    class UnaryToken(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation, details, request):
            return await continuation(with_token(details), request)

    class StreamToken(grpc.aio.UnaryStreamClientInterceptor):
        async def intercept_unary_stream(self, continuation, details, request):
            return await continuation(with_token(details), request)

    return grpc.aio.insecure_channel(url.split("://", 1)[-1], interceptors=[UnaryToken(), StreamToken()])


async def new_client(command):
    web = http()
    web.headers["A2A-Version"] = "1.0"
    card = await A2ACardResolver(web, URL).get_agent_card()
    config = ClientConfig(
        httpx_client=web, streaming=command["do"] in ("stream", "subscribe"),
        supported_protocol_bindings=[BINDING], grpc_channel_factory=channel,
        polling=command.get("polling", False), use_client_preference=True,
    )
    return ClientFactory(config).create(card), card


async def new(command):
    client, card = await new_client(command)
    do = command["do"]
    if do == "card":
        return MessageToDict(card)
    if do in ("send", "stream"):
        message = pb.Message(
            message_id=command.get("id") or str(uuid.uuid4()), role=pb.ROLE_USER, parts=[pb.Part(text=command["text"])],
            task_id=command.get("task", ""), context_id=command.get("context", ""),
        )
        request = pb.SendMessageRequest(message=message)
        if command.get("url"):
            push = pb.TaskPushNotificationConfig(url=command["url"], token="word")
            request.configuration.task_push_notification_config.CopyFrom(push)
        return [MessageToDict(event) async for event in client.send_message(request)]
    if do == "subscribe":
        request = pb.SubscribeToTaskRequest(id=command["task"])
        return [MessageToDict(event) async for event in client.subscribe(request)]
    if do == "get":
        return MessageToDict(await client.get_task(pb.GetTaskRequest(id=command["task"])))
    if do == "list":
        return MessageToDict(await client.list_tasks(pb.ListTasksRequest(context_id=command["context"])))
    if do == "cancel":
        return MessageToDict(await client.cancel_task(pb.CancelTaskRequest(id=command["task"])))
    if do == "push":
        push = pb.TaskPushNotificationConfig(task_id=command["task"], url=command["url"], token="word")
        return MessageToDict(await client.create_task_push_notification_config(push))
    if do == "pushes":
        request = pb.ListTaskPushNotificationConfigsRequest(task_id=command["task"])
        return MessageToDict(await client.list_task_push_notification_configs(request))


def dump(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def old(command):
    from a2a import types as t

    web = http()
    card = await A2ACardResolver(web, URL).get_agent_card()
    config = ClientConfig(
        httpx_client=web, streaming=command["do"] in ("stream", "subscribe"),
        supported_transports=[BINDING], grpc_channel_factory=channel,
        polling=command.get("polling", False), use_client_preference=True,
        push_notification_configs=[t.PushNotificationConfig(url=command["url"], token="word")] if command.get("url") else [],
    )
    client = ClientFactory(config).create(card)
    do = command["do"]
    if do == "card":
        return dump(card)
    if do in ("send", "stream"):
        message = t.Message(
            message_id=command.get("id") or str(uuid.uuid4()), role="user",
            parts=[t.Part(root=t.TextPart(text=command["text"]))],
            task_id=command.get("task"), context_id=command.get("context"),
        )
        out = []
        async for event in client.send_message(message):
            if isinstance(event, tuple):
                task, update = event
                out.append({"update": dump(update)} if update else {"task": dump(task)})
            else:
                out.append({"message": dump(event)})
        return out
    if do == "subscribe":
        return [
            {"update": dump(update)} if update else {"task": dump(task)}
            async for task, update in client.resubscribe(t.TaskIdParams(id=command["task"]))
        ]
    if do == "get":
        return dump(await client.get_task(t.TaskQueryParams(id=command["task"])))
    if do == "cancel":
        return dump(await client.cancel_task(t.TaskIdParams(id=command["task"])))
    if do == "push":
        push = t.PushNotificationConfig(url=command["url"], token="word")
        request = t.TaskPushNotificationConfig(task_id=command["task"], push_notification_config=push)
        return dump(await client.set_task_callback(request))


async def main():
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        try:
            answer = {"ok": await (new if NEW else old)(command)}
        except Exception as error:  # the test checks the error
            answer = {"error": f"{type(error).__name__}: {error}"}
        print("answer " + json.dumps(answer), flush=True)


asyncio.run(main())
