"""Server-sent events, read by hand from the chunks of a body (https://html.spec.whatwg.org/#event-stream-interpretation)."""


def lines_of(chunks):
    """Whole lines of a body in UTF-8, as they come. A line that was cut is not given."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        *lines, rest = rest.split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode("utf-8")


def messages_of(chunks):
    """The messages of a stream: their fields. One that was cut is not given; an id alone is."""
    fields = {}
    for line in lines_of(chunks):
        if not line:
            if "data" in fields or "id" in fields:
                yield fields
            fields = {}
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data" and "data" in fields:
            fields["data"] += "\n" + value
        elif name == "retry":
            if value.isdigit():
                fields["retry"] = int(value)
        elif name in ("data", "event", "id"):
            fields[name] = value
