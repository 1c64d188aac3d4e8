"""The server's own description, asked about real answers: whether each is one that it describes."""

import json

import jsonschema_rs

class Described:
    def __init__(self, description):
        self.description = description
        self.schemas = description["components"]["schemas"]
        self.operations = {
            operation["operationId"]: operation
            for path in description["paths"].values()
            for method, operation in path.items()
            if method in ("get", "put", "post", "patch", "delete", "head", "options")
        }
        self.validators = {}
        self.checked = {}

    def validator(self, schema):
        key = json.dumps(schema, sort_keys=True)
        if key not in self.validators:
            whole = {**schema, "components": self.description["components"]}
            self.validators[key] = jsonschema_rs.Draft202012Validator(whole)
        return self.validators[key]

    def named(self, name):
        return self.validator({"$ref": f"#/components/schemas/{name}"})

    def is_a(self, name, value):
        return self.named(name).is_valid(value)

    def check(self, name, value):
        """Fails unless a value is one of this named schema."""
        self.validate({"$ref": f"#/components/schemas/{name}"}, value, name)

    def validate(self, schema, value, of):
        errors = [f"{error.instance_path}: {error.message}" for error in self.validator(schema).iter_errors(value)]
        text = json.dumps(value)
        assert not errors, f"{of}: {errors[:3]}\n{text[:3000]}"
        self.checked[of] = self.checked.get(of, 0) + 1

    def schema_of(self, operation, status, media_type):
        """What is described for an answer; fails if this answer is not described."""
        responses = self.operations[operation]["responses"]
        response = responses.get(str(status)) or responses.get(f"{status // 100}XX")
        assert response is not None, f"{operation} answers {status}, which is not described"
        content = response.get("content", {})
        if media_type is None:
            assert not content, f"{operation} {status} has no body, and one is described"
            of = f"{operation} {status}"
            self.checked[of] = self.checked.get(of, 0) + 1
            return None
        described = content.get(media_type) or content.get("*/*")
        assert described is not None, f"{operation} {status} is {media_type}, and these are described: {list(content)}"
        return described["schema"]

    def content_of(self, schema):
        """What the text of a body is made of: the shape of a line, or of a message."""
        named = self.schemas[schema["$ref"].rsplit("/", 1)[1]]
        return named["contentSchema"]

    def answer(self, operation, response):
        """Checks a whole answer: its status, its type, and its body. Gives the body."""
        media_type = response.headers.get("content-type", "").split(";")[0] or None
        schema = self.schema_of(operation, response.status_code, media_type)
        of = f"{operation} {response.status_code}"
        if media_type == "application/json":
            body = json.loads(response.content)
            self.validate(schema, body, of)
            return body
        if media_type == "application/x-ndjson":
            lines = [json.loads(line) for line in response.content.split(b"\n") if line]
            for line in lines:
                self.validate(self.content_of(schema), line, of)
            return lines
        if media_type is not None:
            self.checked[of] = self.checked.get(of, 0) + 1
        return response.content

    def message(self, operation, message):
        """Checks one server-sent event of a stream, and what its data holds. Gives that."""
        schema = self.content_of(self.schema_of(operation, 200, "text/event-stream"))
        self.validate(schema, message, f"{operation} message")
        if message["data"] == "[DONE]":
            return None
        data = json.loads(message["data"])
        forms = [form for form in self.forms(schema) if self.validator(form).is_valid(message)]
        fits = [form for form in forms if self.fits(form, data)]
        assert fits, f"{operation}: data of no form that is described: {json.dumps(message)[:3000]}"
        return data

    def forms(self, schema):
        """The forms of a message that a union names."""
        if "$ref" in schema:
            return self.forms(self.schemas[schema["$ref"].rsplit("/", 1)[1]])
        return [form for item in schema["anyOf"] for form in self.forms(item)] if "anyOf" in schema else [schema]

    def fits(self, form, data):
        content = form["properties"]["data"].get("contentSchema")
        return content is not None and self.validator(content).is_valid(data)
