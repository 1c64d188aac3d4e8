"""What a description cannot say: lines of JSON and streams as bodies, and the rules between the parts of a request."""

import json

import schemathesis
from schemathesis.transport.requests import REQUESTS_TRANSPORT


@REQUESTS_TRANSPORT.serializer("application/x-ndjson")
def lines(context, value):
    if isinstance(value, list):
        text = "".join(json.dumps(item) + "\n" for item in value)
    else:
        text = value if isinstance(value, str) else json.dumps(value)
    return {"data": text.encode("utf-8", "surrogatepass")}


@schemathesis.deserializer("application/x-ndjson")
def read_lines(context, response):
    return [json.loads(line) for line in response.content.split(b"\n") if line]


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """Bodies of lines and of server-sent events are texts, which say what they are made of: a list of that, here."""
    schemas = raw_schema["components"]["schemas"]
    for operation in (operation for path in raw_schema["paths"].values() for operation in path.values()):
        for body in [operation.get("requestBody", {}), *operation.get("responses", {}).values()]:
            for media_type, content in body.get("content", {}).items():
                named = schemas[content["schema"]["$ref"].rsplit("/", 1)[1]] if "$ref" in content["schema"] else {}
                if "contentSchema" not in named:
                    continue
                part = named["contentSchema"]
                content["schema"] = {"type": "array", "items": part} if media_type == "application/x-ndjson" else part


def is_positive(case):
    return case.meta is None or case.meta.generation.mode.is_positive


@schemathesis.hook
def before_call(context, case, kwargs):
    name = case.operation.definition.raw.get("operationId")
    body = case.body
    if name == "read_events":
        choose_form(case)
    if not is_positive(case):
        return
    if name == "begin_run" and isinstance(body, dict):
        name_the_runner(body)
        if isinstance(body.get("runner"), str):
            body.pop("lease_seconds", None)
        if isinstance(body.get("attachments"), list):
            body["attachments"] = [elsewhere(item) for item in body["attachments"]]
    if name == "chat" and isinstance(body, dict):
        name_the_runner(body)
        body.pop("messageId", None)  # It names a message that is there.
        body["messages"] = [*(body.get("messages") or []), {"role": "user", "parts": [{"type": "text", "text": "Where to?"}]}]
    if name == "append_events" and isinstance(body, list):
        for event in body:
            complete(event)
        ends = [nth for nth, event in enumerate(body) if event["event"] in ENDS]
        del body[ends[0] + 1 if ends else len(body):]


# Events that end a run: none follows them.
ENDS = {"done", "stream_end", "cancel", "apperror", "error"}


def choose_form(case):
    """Server-sent events or lines. Lines that go on until the run has ended would be waited for, and a place in the run
    that is none is told with a notice in the one form and refused in the other."""
    query = case.query or {}
    if len(json.dumps(query, default=str)) % 2 == 0:
        case.headers["accept"] = "text/event-stream"
        return
    if query.get("follow") in (True, "true"):
        del query["follow"]
    for place, name in ((query, "after"), (case.headers, "last-event-id")):
        if is_positive(case) and name in place:
            place[name] = "0"


def name_the_runner(body):
    """The server knows its runners; a description that is the same everywhere does not."""
    if isinstance(body.get("runner"), str):
        body["runner"] = "demo"


def elsewhere(attachment):
    """A file that is named is there: one of another place, because nothing was uploaded."""
    if isinstance(attachment, dict) and not {"url", "attachment"}.isdisjoint(attachment):
        return {"type": "file", "mediaType": "image/png", "url": "https://example.org/a.png"}
    return attachment


def complete(event):
    """A name is trimmed, has no control characters and is bounded in bytes; what is more than a name has a payload."""
    name = "".join(c for c in event["event"] if c.isprintable())
    event["event"] = name.encode("utf-8", "replace")[:64].decode("utf-8", "ignore").strip() or "token"
    event.setdefault("payload", None)
