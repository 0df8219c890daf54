"""An agent on the genuine library of either generation: `a2a_agent.py PORT [rest | grpc] [blocking]`.

What the user says decides what it does; every message that reaches it is a line of JSON in the file A2A_LOG. With A2A_KEY set,
everything but the card needs `X-Key` with that value. With A2A_INTROSPECT set, it needs a bearer token that the authorization
server at that address knows.
"""

import asyncio
import json
import os
import re
import sys

import uvicorn

PORT, FLAGS = int(sys.argv[1]), sys.argv[2:]
URL = f"http://127.0.0.1:{PORT}"
REST, GRPC, STREAMS = "rest" in FLAGS, "grpc" in FLAGS, "blocking" not in FLAGS
BINDING = "HTTP+JSON" if REST else "GRPC" if GRPC else "JSONRPC"
flaky = set()

try:
    from a2a.types import a2a_pb2  # noqa: F401

    NEW = True
except ImportError:
    NEW = False


if NEW:
    from a2a.helpers.proto_helpers import new_task_from_user_message
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
    from a2a.server.tasks import (
        BasePushNotificationSender,
        InMemoryPushNotificationConfigStore,
        InMemoryTaskStore,
        TaskUpdater,
    )
    from a2a.types import a2a_pb2 as pb
    from google.protobuf.json_format import MessageToDict, ParseDict
    from starlette.applications import Starlette

    def text(words):
        return pb.Part(text=words)

    def data(value):
        return ParseDict({"data": value}, pb.Part())

    def file(uri):
        return pb.Part(url=uri, filename=uri.rsplit("/", 1)[-1], media_type="application/pdf")

    def message_json(message):
        return MessageToDict(message)

    def task_of(context):
        return new_task_from_user_message(context.message)

    def is_open(task):
        return task.status.state == pb.TASK_STATE_INPUT_REQUIRED

    def card(url):
        return pb.AgentCard(
            name="prices", description="knows prices", version="1",
            supported_interfaces=[pb.AgentInterface(url=url, protocol_binding=BINDING, protocol_version="1.0")],
            capabilities=pb.AgentCapabilities(streaming=STREAMS, push_notifications=True),
            default_input_modes=["text/plain"], default_output_modes=["text/plain"],
            skills=[pb.AgentSkill(id="p", name="p", description="p", tags=["p"])],
        )
else:
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.apps import A2AFastAPIApplication, A2ARESTFastAPIApplication
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.tasks import (
        BasePushNotificationSender,
        InMemoryPushNotificationConfigStore,
        InMemoryTaskStore,
        TaskUpdater,
    )
    from a2a import types as t
    from a2a.utils import new_task

    def text(words):
        return t.Part(root=t.TextPart(text=words))

    def data(value):
        return t.Part(root=t.DataPart(data=value))

    def file(uri):
        inner = t.FileWithUri(uri=uri, name=uri.rsplit("/", 1)[-1], mime_type="application/pdf")
        return t.Part(root=t.FilePart(file=inner))

    def message_json(message):
        return message.model_dump(mode="json", by_alias=True, exclude_none=True)

    def task_of(context):
        return new_task(context.message)

    def is_open(task):
        return task.status.state == t.TaskState.input_required

    def card(url):
        return t.AgentCard(
            name="prices", description="knows prices", version="1", url=url, preferred_transport=BINDING,
            capabilities=t.AgentCapabilities(streaming=STREAMS, push_notifications=True),
            default_input_modes=["text/plain"], default_output_modes=["text/plain"],
            skills=[t.AgentSkill(id="p", name="p", description="p", tags=["p"])],
        )


class Prices(AgentExecutor):
    async def execute(self, context, queue):
        said = context.get_user_input().strip().splitlines()[-1].lower()
        with open(os.environ["A2A_LOG"], "a") as log:
            log.write(json.dumps(message_json(context.message)) + "\n")
        task = context.current_task
        if task is None and "hello" in said:
            message = TaskUpdater(queue, "", context.context_id).new_agent_message([text("Hi, what do you need?")])
            message.task_id = "" if NEW else None
            return await queue.enqueue_event(message)
        went_on = task is not None and is_open(task)
        if task is None:
            task = task_of(context)
            await queue.enqueue_event(task)
        updater = TaskUpdater(queue, task.id, task.context_id)

        def words(*parts, **metadata):
            return updater.new_agent_message(list(parts), metadata=metadata or None)

        if went_on:
            people = int(re.search(r"\d+", said).group()) if re.search(r"\d+", said) else 0
            if people == 0:
                return await updater.requires_input(words(text("A number, please.")))
            await updater.start_work(words(text("Adding up")))
            quote = {"price": 30 * people, "people": people}
            parts = [data(quote), text(f"{people} people: {30 * people} euros"), file("https://example.org/quote.pdf")]
            await updater.add_artifact(parts, artifact_id="a1", name="quote")
            return await updater.complete(words(text("Done.")))
        if "price" in said:
            await updater.start_work(words(text("Looking it up")))
            return await updater.requires_input(words(text("For how many people?"), data({"most": 9})))
        if "echo" in said:
            parts = [data({"heard": message_json(context.message)})]
            await updater.add_artifact(parts, artifact_id="a1", name="echo")
            return await updater.complete()
        if "pieces" in said:
            for at, piece in enumerate(["one ", "two ", "three"]):
                await updater.add_artifact([text(piece)], artifact_id="a1", append=at > 0, last_chunk=at == 2)
            return await updater.complete()
        if "fail" in said:
            return await updater.failed(words(text("it is broken")))
        if "flaky" in said:
            if task.context_id not in flaky:
                flaky.add(task.context_id)
                return await updater.failed(words(text("not now"), **{"retryable": True}))
            return await updater.complete(words(text("At last.")))
        if "refuse" in said:
            return await updater.reject(words(text("not my work")))
        if "login" in said:
            return await updater.requires_auth(words(text("Please log in at https://example.org")))
        if "crash" in said:
            raise RuntimeError("it fell over")
        if "long" in said:
            await updater.start_work(words(text("It takes a while")))
            await asyncio.sleep(float(os.environ.get("A2A_LONG", "2")))
            return await updater.complete(words(text("It is done.")))
        if "forever" in said:
            await updater.start_work(words(text("Working")))
            await asyncio.sleep(3600)
        await updater.complete(words(text("Nothing to do.")))

    async def cancel(self, context, queue):
        with open(os.environ["A2A_LOG"], "a") as log:
            log.write(json.dumps({"cancelled": context.task_id}) + "\n")
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def admission():
    """Whether headers, in lower case, say who may ask."""
    import httpx

    key, introspect = os.environ.get("A2A_KEY"), os.environ.get("A2A_INTROSPECT")
    web = httpx.AsyncClient(auth=("agent", "knows"))

    async def admits(headers):
        if key:
            return headers.get("x-key") == key
        if introspect:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            if scheme != "Bearer":
                return False
            answer = (await web.post(introspect, data={"token": token})).json()
            return answer["active"] and "tools:read" in answer["scope"].split()
        return True

    return admits


def guarded(app):
    admits = admission()

    async def outer(scope, receive, send):
        if scope["type"] == "http" and not scope["path"].startswith("/.well-known"):
            if not await admits({name.decode(): value.decode() for name, value in scope["headers"]}):
                await send({"type": "http.response.start", "status": 401, "headers": []})
                return await send({"type": "http.response.body", "body": b""})
        await app(scope, receive, send)

    return outer


async def by_grpc(card_at, handler_of):
    """Serves gRPC on a free port, and gives the card that names it."""
    import grpc
    from a2a.server.request_handlers.grpc_handler import GrpcHandler

    if NEW:
        from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
    else:
        from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server

    admits = admission()

    class Guard(grpc.aio.ServerInterceptor):
        async def intercept_service(self, go_on, details):
            if not await admits(dict(details.invocation_metadata)):
                async def refuse(request, context):
                    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")

                inner = await go_on(details)
                if inner.response_streaming:
                    async def refuse_all(request, context):
                        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
                        yield

                    return grpc.unary_stream_rpc_method_handler(
                        refuse_all, inner.request_deserializer, inner.response_serializer
                    )
                return grpc.unary_unary_rpc_method_handler(
                    refuse, inner.request_deserializer, inner.response_serializer
                )
            return await go_on(details)

    server = grpc.aio.server(interceptors=[Guard()])
    # As people write such addresses: a host and a port.
    card = card_at(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    handler = handler_of(card)
    add_A2AServiceServicer_to_server(GrpcHandler(handler) if NEW else GrpcHandler(card, handler), server)
    await server.start()
    return card, handler, server


async def main():
    import httpx

    configs = InMemoryPushNotificationConfigStore()
    push = dict(push_config_store=configs, push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs))

    def handler_of(card):
        described = dict(agent_card=card) if NEW else {}
        return DefaultRequestHandler(agent_executor=Prices(), task_store=InMemoryTaskStore(), **described, **push)

    kept = None
    if GRPC:
        own, handler, kept = await by_grpc(card, handler_of)
    else:
        own = card(URL)
        handler = handler_of(own)
    if NEW:
        asking = [] if GRPC else create_rest_routes(handler) if REST else create_jsonrpc_routes(handler, "/")
        app = Starlette(routes=[*create_agent_card_routes(own), *asking])
    else:
        kind = A2ARESTFastAPIApplication if REST else A2AFastAPIApplication
        app = kind(agent_card=own, http_handler=handler).build()
    config = uvicorn.Config(guarded(app), host="127.0.0.1", port=PORT, timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve()
    if kept:
        await kept.stop(None)


asyncio.run(main())
