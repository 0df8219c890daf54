"""An A2A agent built with a2a-sdk, 1.x or 0.3: `a2a_agent.py PORT [rest | grpc] [blocking]`.

Without `rest` or `grpc` it speaks JSON-RPC; with `blocking` it does not offer streams. The text of the user decides what it does.
Each message that it receives is a line of JSON in the file A2A_LOG. With A2A_KEY set, all requests except those for the card need the
header `X-Key` with that value. With A2A_INTROSPECT set, they need a bearer token that is valid according to the introspection
endpoint at that address.
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
        continues = task is not None and is_open(task)
        if task is None:
            task = task_of(context)
            await queue.enqueue_event(task)
        updater = TaskUpdater(queue, task.id, task.context_id)

        def words(*parts, **metadata):
            return updater.new_agent_message(list(parts), metadata=metadata or None)

        if continues:
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
            parts = [data({"message": message_json(context.message)})]
            await updater.add_artifact(parts, artifact_id="a1", name="echo")
            return await updater.complete()
        if "pieces" in said:
            for index, chunk in enumerate(["one ", "two ", "three"]):
                await updater.add_artifact([text(chunk)], artifact_id="a1", append=index > 0, last_chunk=index == 2)
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
            raise RuntimeError("crash on request")
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


def authenticator():
    """Returns a function that checks the headers of a request; their names are in lower case."""
    import httpx

    key, introspect = os.environ.get("A2A_KEY"), os.environ.get("A2A_INTROSPECT")
    http = httpx.AsyncClient(auth=("agent", "knows"))

    async def is_authenticated(headers):
        if key:
            return headers.get("x-key") == key
        if introspect:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            if scheme != "Bearer":
                return False
            answer = (await http.post(introspect, data={"token": token})).json()
            return answer["active"] and "tools:read" in answer["scope"].split()
        return True

    return is_authenticated


def with_authentication(app):
    """Wraps an ASGI app: requests that are not authenticated get status 401, except those for the card."""
    is_authenticated = authenticator()

    async def outer(scope, receive, send):
        if scope["type"] == "http" and not scope["path"].startswith("/.well-known"):
            if not await is_authenticated({name.decode(): value.decode() for name, value in scope["headers"]}):
                await send({"type": "http.response.start", "status": 401, "headers": []})
                return await send({"type": "http.response.body", "body": b""})
        await app(scope, receive, send)

    return outer


async def serve_grpc(card_for, handler_for):
    """Serves gRPC on a free port. Returns the card with its address, the handler and the server."""
    import grpc
    from a2a.server.request_handlers.grpc_handler import GrpcHandler

    if NEW:
        from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
    else:
        from a2a.grpc.a2a_pb2_grpc import add_A2AServiceServicer_to_server

    is_authenticated = authenticator()

    class Authentication(grpc.aio.ServerInterceptor):
        async def intercept_service(self, continuation, details):
            if not await is_authenticated(dict(details.invocation_metadata)):
                async def reject(request, context):
                    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "invalid credentials")

                inner = await continuation(details)
                if inner.response_streaming:
                    async def reject_stream(request, context):
                        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "invalid credentials")
                        yield

                    return grpc.unary_stream_rpc_method_handler(
                        reject_stream, inner.request_deserializer, inner.response_serializer
                    )
                return grpc.unary_unary_rpc_method_handler(
                    reject, inner.request_deserializer, inner.response_serializer
                )
            return await continuation(details)

    server = grpc.aio.server(interceptors=[Authentication()])
    # The usual form of a gRPC address: host and port without a scheme.
    card = card_for(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    handler = handler_for(card)
    add_A2AServiceServicer_to_server(GrpcHandler(handler) if NEW else GrpcHandler(card, handler), server)
    await server.start()
    return card, handler, server


async def main():
    import httpx

    configs = InMemoryPushNotificationConfigStore()
    push = dict(push_config_store=configs, push_sender=BasePushNotificationSender(httpx.AsyncClient(), configs))

    def handler_for(card):
        card_argument = dict(agent_card=card) if NEW else {}
        return DefaultRequestHandler(agent_executor=Prices(), task_store=InMemoryTaskStore(), **card_argument, **push)

    grpc_server = None
    if GRPC:
        own_card, handler, grpc_server = await serve_grpc(card, handler_for)
    else:
        own_card = card(URL)
        handler = handler_for(own_card)
    if NEW:
        routes = [] if GRPC else create_rest_routes(handler) if REST else create_jsonrpc_routes(handler, "/")
        app = Starlette(routes=[*create_agent_card_routes(own_card), *routes])
    else:
        application = A2ARESTFastAPIApplication if REST else A2AFastAPIApplication
        app = application(agent_card=own_card, http_handler=handler).build()
    config = uvicorn.Config(with_authentication(app), host="127.0.0.1", port=PORT, timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve()
    if grpc_server:
        await grpc_server.stop(None)


asyncio.run(main())
